/* folder.h -- a model folder as Hugging Face's transformers write it: config.json, and model.safetensors or several
 * such files with an index. */
#ifndef MPC_DRIVER_HF_FOLDER_H
#define MPC_DRIVER_HF_FOLDER_H

#include "member.h"
#include "tensors.h"

#define INFINITE "{\"__float__\":\"Infinity\"}" /* as transformers 5 writes it into config.json */

typedef struct {
    const char *path;
    struct cJSON *config, *index; /* NULL: there is none */
    TensorFile *file;
    int nfiles;
    StoredTensor *list; /* of its configuration, under the names that the map has for them; NULL: none */
    int nlists;
    StoredTensor **tensor; /* of all files, and the lists, by name */
    int count;
} Folder;

/* False after reporting.  A folder with a configuration alone is refused, or has no file then. */
bool open_folder(Run *run, Folder *folder, const char *path, bool may_lack_weights);
void close_folder(Folder *folder);

/* Is it an index of several files, by its name? */
bool is_index(const char *path);

/* Opens the files that an index of the folder names.  False after reporting. */
bool open_indexed(Run *run, Folder *folder, const char *index);

/* Lists the tensors of its files, and its lists.  False after reporting two of one name. */
bool sort_tensors(Run *run, Folder *folder);

int find_stored(const Folder *folder, const char *name); /* its number, or -1 */

#endif
