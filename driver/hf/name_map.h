/* name_map.h -- a .map file: which tensors of a Hugging Face folder are which parameters of a model.  docs/hf.md
 * describes the format. */
#ifndef MPC_DRIVER_HF_NAME_MAP_H
#define MPC_DRIVER_HF_NAME_MAP_H

#include "tensors.h"

enum { MAX_ITEMS = 8 }; /* of each list below */

struct cJSON;

typedef enum { OF_DIM, OF_ONE, OF_COPIES, OF_TARGETS } ItemKind;

/* A factor of an axis: `kv_heads`; `1`; `*`, the copies of a repeat; `3`, the parameters on the right. */
typedef struct {
    ItemKind kind;
    Loc loc;
    const char *dim;
    int64_t number;
} Item;

/* `kv_heads group head` */
typedef struct {
    Loc loc;
    int count;
    Item item[MAX_ITEMS];
} Product;

/* `ff + ff`: products one after the other; `heads (nope + turned)`: for each of what is around them */
typedef struct {
    Loc loc;
    Product around; /* without items: nothing */
    int count;
    Product part[MAX_ITEMS];
} Axis;

/* `h.*.attn.wqkv[three = 0]` */
typedef struct {
    Loc loc;
    const char *path;
    const char *dim; /* NULL: the whole parameter */
    int64_t index;
} MapTarget;

/* `a.*.weight [vocab, embed] = h.*.wte, ...` */
typedef struct MapLine {
    Loc loc; /* of the tensor's name */
    Loc axes_loc;
    const char *name;
    int naxes, ntargets;
    Axis axis[MAX_ITEMS];
    MapTarget target[MAX_ITEMS];
    struct MapLine *next;
} MapLine;

/* `ignore NAME`, `tied NAME = NAME` */
typedef struct Aside {
    Loc loc;
    const char *name, *same; /* NULL: ignored */
    struct Aside *next;
} Aside;

/* An item of config.json that the map has read; is_whole: and all that is in it. */
typedef struct {
    const struct cJSON *item;
    bool is_whole;
} SeenItem;

/* `default KEY = VALUE`, `alias KEY = OLDER` */
typedef struct KeyRule {
    const char *key, *older; /* NULL: a default */
    struct cJSON *value;     /* of what is not there */
    struct KeyRule *next;
} KeyRule;

/* What the map has said of the keys of config.json; used while it is read. */
typedef struct {
    SeenItem *seen;
    int count, room;
    KeyRule *rules;
    bool is_complete; /* it has a `harmless` statement: other keys are refused */
} KeyList;

typedef struct {
    Source source;
    Diags diags;
    const char *prefix; /* "": none */
    StoredTensor *list; /* what the names "config.KEY" stand for */
    int nlists;
    MapLine *adapters; /* `adapter CONST: TENSOR [AXES] = PARAMETER`, under peft's names */
    const char *alpha; /* that const of the model; NULL: no adapter */
    Loc alpha_loc;
    const char *model; /* "llama.mdl", where it is not called as the map; NULL: it is */
    MapLine *lines;
    Aside *asides;
    TextList defines; /* "layers=12", from the configuration */
    KeyList keys;
} NameMap;

/* Reads a map, with the configuration that its statements ask, which is in the file config_path.  False after
 * reporting, also keys of the configuration that the map does not know. */
bool read_name_map(Run *run, NameMap *map, const char *path, const struct cJSON *config, const char *config_path);

/* --- scan.c -------------------------------------------------------------------------------- */

/* The reader of one line. */
typedef struct {
    Run *run;
    NameMap *map;
    const struct cJSON *config;
    int at; /* in the source */
} Scan;

char peek_sign(Scan *scan);                /* the next character, after spaces; '\n' at the end of the line */
bool accept_sign(Scan *scan, char wanted); /* skips it */
bool expect_sign(Scan *scan, char wanted, const char *before); /* the same, or reports that it lacks */
const char *scan_name(Scan *scan, Loc *loc);                   /* up to a space or one of [],=; "": reported */
const char *scan_word(Scan *scan, Loc *loc);                   /* letters, digits, '_' and '.'; "": none */
bool scan_number(Scan *scan, double *number);
bool scan_string(Scan *scan, const char **text);
bool is_keyword(Scan *scan, const char *word); /* skips it */

/* --- keys.c -------------------------------------------------------------------------------- */

/* A key of config.json, "rope_parameters.rope_theta"; NULL after reporting that there is none. */
const char *read_key(Scan *scan, const char *noun, Loc *loc);

/* What config.json says under a key or under an older name of it, else the default of the map; NULL: nothing, or null.
 */
const struct cJSON *find_key(const Scan *scan, const char *key);

/* The same; and the item counts as read. */
const struct cJSON *use_key(Scan *scan, const char *key);

bool read_harmless(Scan *scan); /* the rest of `harmless KEY, ...` */
bool read_alias(Scan *scan);    /* the rest of `alias KEY = OLDER` */
bool read_default(Scan *scan);  /* the rest of `default KEY = VALUE` */
void drop_key_rules(NameMap *map);

#define PEFT_PREFIX "base_model.model." /* what peft puts before the names of a model */

/* Is it the name of a list of config.json, "config.rope_parameters.long_factor"? */
bool is_list_name(const char *name);
bool read_list(Scan *scan, const char *name, Loc loc); /* its numbers: one more list of the map */

/* --- unread.c ------------------------------------------------------------------------------ */

/* Reports each item of the configuration that the map has not read and that may matter: an error, or a warning where
 * the map does not list all keys. */
void report_unread(Scan *scan, const char *config_path);

/* --- config.c ------------------------------------------------------------------------------ */

/* The rest of `need KEY = VALUE, ...`, or `cycle`: false after reporting other values. */
bool read_need(Scan *scan, bool is_cycle);
/* The rest of `if KEY = VALUE, ...:`. */
bool read_condition(Scan *scan, bool *holds);
/* One VALUE, to be deleted by the caller.  False after reporting. */
bool read_value(Scan *scan, struct cJSON **value);
bool read_set(Scan *scan); /* the rest of `set NAME = EXPR else EXPR`: one more define */

#endif
