/* lower.h -- from the tree of a .mdl file to IR: names, numbers, dims, types, settings.
 *
 * All errors of a file are reported in one run; a module results only if there are none.
 */
#ifndef MPC_LOWER_H
#define MPC_LOWER_H

#include "ir.h"
#include "target.h"

typedef struct Ast Ast; /* syntax/ast.h */

/* -D NAME=VALUE and --set train.KEY=VALUE. */
typedef struct {
    const char *name, *value; /* "layers", "12"; "train.optimizer.lr", "1e-4" */
} Override;

/* Dims that keep their sizes when others are shrunk; names in the arena of the diagnostics. */
enum { MAX_WHOLE = 8 };
typedef struct {
    int64_t others; /* what the largest other dim was shrunk to last, about; 0: the file cannot be shrunk */
    int count;
    const char *at[MAX_WHOLE];
} WholeDims;

typedef struct {
    const Override *defines, *sets;
    int ndefines, nsets;
    const char *mesh, *zero, *recompute, *offload, *schedule, *stages, *chunks; /* NULL: as in the file */
    /* The text of a file that the model names, as of a path from the current folder; NULL with the reason in *why. */
    Source *(*read_text)(void *context, const char *path, const char **why);
    void *context;
    const Target *target; /* NULL: none */
    int64_t shrink;       /* 0: sizes as declared; else the size to which the largest dim is shrunk, for verification */
    struct Facts *facts;  /* gets the types of names and expressions, see facts.h; NULL: nobody asks for them */
    bool no_overlap;      /* of messages of zero, unless the file asks for it: it does not fit into the memory */
    bool has_map;         /* a map of tensors, which may read what -D sets; without it an unread -D is an error */
    bool trains_alone;    /* without evaluation and prediction: nobody runs it */
    WholeDims *whole;     /* not shrunk; gets those of which the file names elements that they would lack; NULL: none */
} LowerOptions;

/* An effective setting, for plan.json. */
typedef struct {
    const char *name;  /* "train.batch" */
    const char *value; /* as text: "512", "cosine" */
    const char *unit;  /* "sequences", or "" */
    const char *from;  /* "gpt2.mdl:63:5", "command line", "default" */
    bool unread;       /* a const or dim that nothing in the file reads, see has_map */
} Setting;

typedef struct {
    int count, room;
    Setting *at;
} Settings;

bool is_whole_dim(const WholeDims *whole, const char *dim); /* is it one of them? */
/* False if it is one of them already, or if there is no room. */
bool add_whole_dim(WholeDims *whole, Arena *arena, const char *dim);

/* A verified module, or NULL after reporting.  `settings`, if not NULL, receives every effective setting; valid as long
 * as the module. */
Module *lower_mdl(const Ast *file, const Source *source, const LowerOptions *options, Diags *diags, Settings *settings);

#endif
