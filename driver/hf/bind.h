/* bind.h -- a map, applied to a folder and a model: which elements of which tensor are which of which parameter. */
#ifndef MPC_DRIVER_HF_BIND_H
#define MPC_DRIVER_HF_BIND_H

#include "folder.h"
#include "name_map.h"

/* A box of elements of one tensor of the folder and of one copy of a parameter; sizes and strides in elements. */
typedef struct Move {
    int tensor, copy;
    int64_t tensor_at, param_at;
    int rank;
    int64_t size[MAX_RANK], tensor_stride[MAX_RANK], param_stride[MAX_RANK];
    struct Move *next_of_tensor, *next_of_copy;
} Move;

/* One tensor of a checkpoint. */
typedef struct {
    const Param *param;
    const char *name; /* "h.3.attn.wq" */
    int rank;
    int64_t size[MAX_RANK];
    int64_t count, fed; /* elements */
    const char *dtype;  /* in the folder; NULL: none yet */
    Move *moves;
} ParamCopy;

typedef struct {
    const MapLine *line; /* that feeds it; NULL: none */
    Move *moves;
    int64_t fed;
    int same; /* `tied`: the tensor that it repeats; -1: none */
    bool is_ignored;
} TensorUse;

/* A dim of which the folder has another size than the model, where mpc import is told so: -D vocab=32016. */
typedef struct {
    const char *dim; /* NULL: none */
    int64_t old, wanted;
} Resize;

typedef struct {
    Run *run;
    const Module *m;
    const Folder *folder;
    NameMap *map;
    Resize resize;
    bool is_of_adapters; /* the lines are those of adapters, and parameters without a line are others */
    bool has_prefix;     /* as the map's names */
    ParamCopy *copy;     /* in the order of the model */
    int ncopies;
    TensorUse *use; /* of each tensor of the folder */
} Binding;

/* False after reporting each tensor of the folder that is not used exactly once, each parameter that is not fed exactly
 * once, and all shapes that differ. */
bool bind_map(Binding *binding, Run *run, const Module *m, const Folder *folder, NameMap *map, Resize resize);

/* Gives a folder without weights one file, to be written: the tensors that the map names for the model's parameters, in
 * the dtype of the configuration, or f32.  False after reporting. */
bool name_tensors(Run *run, Folder *folder, const Module *m, NameMap *map, const char *file_name);

/* Binds the adapters of a map to a folder at this path, which gets the tensors that peft would write, in f32; it is
 * the caller's to close.  False after reporting. */
bool bind_adapters(Binding *binding, Run *run, const Module *m, Folder *folder, const char *path, const NameMap *map);

/* --- resize.c ------------------------------------------------------------------------------ */

/* The dim of a parameter, not of its copies, that is resized; -1: none. */
int resized_dim(const Binding *b, const Param *param);

/* How much of a tensor, or of a copy of a parameter, with so many elements is in both. */
int64_t kept_of_tensor(const Binding *b, const MapLine *line, int64_t count);
int64_t kept_of_copy(const Binding *b, const ParamCopy *copy);

/* The elements of a copy beyond the old size become the mean of the old ones along that dim. */
void fill_resized(const Binding *b, const ParamCopy *copy, char *elements);
void note_resize(const Binding *b); /* on stderr */

/* --- names.c ------------------------------------------------------------------------------- */

enum { MAX_VARS = 2 * MAX_RANK };

/* What the names of a line count: copies of a repeat, or the elements of a dim. */
typedef struct {
    const char *name; /* NULL: `*` */
    int dim;          /* of the parameter's type, its copies included */
    bool is_copy;
    int64_t first, step, size, value; /* of copies, these numbers: first, first + step, ... */
    int64_t whole;                    /* all copies of this path */
} Var;

int64_t number_at(const Var *var);

typedef struct {
    int count;
    Var var[MAX_VARS];
    const TextList *defines; /* names may use them, too */
} Vars;

/* "h.{i}.wq": the path "h.*.wq", and its variables without sizes. */
const char *path_of(Arena *arena, const char *text, Vars *vars);

/* The name of a tensor, with all variables' values; NULL: *unknown is what no variable is called.  *stars: of the `*`
 * it has. */
const char *name_of(Arena *arena, const char *pattern, const Vars *vars, const char **unknown, int *stars);

/* Does the pattern count this variable?  `star`: its number among those without a name. */
bool is_counted(Arena *arena, const char *pattern, const char *name);

/* The next values, the last variable fastest; false after the last. */
bool next_values(Vars *vars);

#endif
