/* source.h -- the source that a value of --data names: a file, or a folder of shards, and a weight in the mixture. */
#ifndef MPC_RUNTIME_SOURCE_H
#define MPC_RUNTIME_SOURCE_H

typedef struct {
    char *name;    /* without the weight */
    double weight; /* above 0; 0: none is given */
    char **file;   /* its files, by name; of a folder all but hidden ones, and Megatron's indices */
    int files;
} RtSource;

/* FILE, FOLDER, or either with ":WEIGHT".  Ends the trainer if a folder has no files, or such as are not of one kind.
 */
RtSource rt_source_of(const char *given, const char *option);
void rt_source_free(RtSource *source);

#endif
