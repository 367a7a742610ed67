/* resolve.h -- internals of finding what names refer to.
 *
 *   names.c    declarations and uses as they are found; questions about them
 *   resolve.c  goes through the tree
 */
#ifndef MPC_LSP_RESOLVE_H
#define MPC_LSP_RESOLVE_H

#include "names.h"

/* The names of a file, a block, or a body of a repeat. */
typedef struct Level {
    Declaration *newest;
    Loc range;
    struct Level *outer;
} Level;

typedef struct {
    NameTable *names;
    Level *level;
    const Ast *statement, *model; /* NULL: none */
    const char *holder;           /* the block, model or optimizer; "": the file */
    bool in_optimizer;
} Walk;

/* Kinds of names, as bits. */
enum {
    INSTANCES = 1 << N_INSTANCE,
    AXES = 1 << N_AXIS,
    OPTIMIZERS = 1 << N_OPTIMIZER,
    DIMS = 1 << N_DIM,
    NUMBERS = 1 << N_CONST,
    LOCALS = 1 << N_VALUE | 1 << N_ARGUMENT | 1 << N_STATE,
    ANY_VALUE = ~(INSTANCES | AXES | OPTIMIZERS)
};

Mention *add_mention(Walk *w, MentionKind kind, Loc at, const char *name, Declaration *of);
Declaration *find_name(const Level *level, const char *name, int kinds); /* also in outer levels; NULL */
void declares(Walk *w, Loc at, Declaration *named);                      /* notes another place that assigns it */
Declaration *declare_name(Walk *w, Level *level, NameKind kind, const char *name, Loc at, const Ast *declared);
bool use_name(Walk *w, const char *name, Loc at, int kinds); /* false: nothing is named so */
void use_list(Walk *w, const Ast *list, int kinds);
void use_dim(Walk *w, const char *name, Loc at);
void use_dims(Walk *w, const Ast *list);
void use_or_make_dim(Walk *w, const Ast *ast); /* a dim that is used, unless this has declared it */
void assign(Walk *w, Level *level, const char *name, Loc at);

#endif
