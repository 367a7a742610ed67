/* facts.h -- the facts that a lowering learns of the names and expressions of a file: their types, for editors. */
#ifndef MPC_FACTS_H
#define MPC_FACTS_H

#include "ir.h"
#include "map.h"

/* Of an expression, or of a name where it is declared or gets a value. */
typedef struct Fact {
    Loc at;
    const char *type;  /* "i32[batch, seq]"; of a number "12" */
    const char *sizes; /* "batch = 8, seq = 1024"; "" for a number */
    const char *path;  /* of a tensor that a name is given to, in the first instance: "h.attn.q"; else NULL */
    int others;        /* how many instances of its block have another type */
    struct {
        int tensors;     /* of all instances and copies; 0: no parameter */
        double elements; /* of all of them */
        bool decays;     /* known if `is_complete` */
        const char *path;
    } param;
    const struct Description *described; /* the same during the lowering */
    struct Fact *next;                   /* that begins at the same byte */
    struct Fact *older;                  /* in the list of all */
} Fact;

typedef struct Facts {
    Arena *arena;
    const Source *source;
    Map begin; /* a byte of the source -> the facts that begin there */
    Fact *newest;
    bool is_complete; /* there were no errors */
} Facts;

/* Of that place; NULL: nothing is known. */
const Fact *fact_at(const Facts *facts, Loc at);

#endif
