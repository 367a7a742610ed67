/* symbols.h -- names and their meanings: numbers known at compile time, operands, scopes.  Shared by the files of
 * the lowering, with lowering.h. */
#ifndef MPC_SYMBOLS_H
#define MPC_SYMBOLS_H

#include "lower.h"
#include "syntax/ast.h"

/* --- Numbers known at compile time ----------------------------------------------------------- */

/* Integers stay exact; one real operand makes the result real. */
typedef struct {
    bool real;
    bool rooted; /* an integer that was computed from a root: what it does not divide becomes a fraction */
    int64_t integer;
    double value; /* of both kinds */
} Constant;

Constant integer_constant(int64_t value);
Constant real_constant(double value);
const char *constant_text(Arena *arena, Constant c);

/* Applies `op` ("+", "sqrt", ...) to n numbers.  NULL on success, else the error. */
const char *fold_constants(Arena *arena, const char *op, int n, const Constant args[], Constant *result);
const char *division_help(Arena *arena, Constant a, Constant b); /* of integers that do not divide; or NULL */
bool may_be_folded(const char *name); /* is this function permitted in constant expressions? */

/* --- Operands -------------------------------------------------------------------------------- */

typedef enum { WRONG, NUMBER, TENSOR } OperandKind;

typedef struct {
    OperandKind kind;
    Constant number;
    Value *value; /* TENSOR: of the present function */
} Operand;

static const Operand wrong = { .kind = WRONG };

/* --- Names ----------------------------------------------------------------------------------- */

typedef enum {
    S_CONST,
    S_DIM,
    S_BLOCK,
    S_MODEL,
    S_LOCAL,
    S_ARGUMENT,
    S_PARAM,
    S_INPUT,
    S_DIMS,
    S_INSTANCE,
    N_SYMBOLS
} SymbolKind;

typedef struct Body Body;
typedef struct NamedInstance NamedInstance;
typedef struct Use Use;
typedef struct Yield Yield;
typedef struct Runs Runs;
enum { TRIALS = 3 };
enum { MAX_COPIES = 100000, MAX_NUMBERED = 1024 }; /* of a repeat, and of one that numbers its copies */

typedef struct Symbol {
    SymbolKind kind;
    const char *name;
    unsigned hash; /* of the name */
    Loc loc;
    bool used;
    bool named;           /* in a part that is switched off */
    bool of_copy;         /* of a const: another number in other copies of a repeat, see numbered.c */
    bool from_before;     /* of a local: a carried value of a repeat, which may remain unread */
    Constant number;      /* of a const; of a dim or several its size */
    struct Symbol *meant; /* of a dim or const of a block: what the call gives; NULL: a number */
    Names dims;           /* of `in` and `out` in an optimizer */
    int64_t padded;       /* of a dim: size in memory */
    double trial[TRIALS]; /* of a dim: trial sizes, see try_sizes */
    bool wrong;           /* a const or dim with an error in its expression */
    bool taken;           /* a model or block after which a value was to be named, which has been reported */
    bool is_others;       /* a dim of as many elements as the micro-batch, that others() makes */
    bool is_slots;        /* a dim whose size dispatch computes: 0 until then */
    Name experts;         /* of such a dim: whose slots they are */
    Values choices;       /* of such a dim: what rows were dispatched by, where it is computed */
    const Body *rounds;   /* of such a dim: the repeat whose copies take turns at the queues; NULL: none */
    const Ast *ast;       /* the declaration */
    enum { UNKNOWN, NONE_KNOWN, SOME } parameters; /* of a block */
    Operand operand;                               /* of a local, argument, param, input: valid in `frame` */
    Value *state;                                  /* of a param that is a state: the tensor itself */
    bool updated;                                  /* and it has an update */
    NamedInstance *shared;                         /* of an instance */
    Body *frame;
    struct Symbol *next;        /* declared before it, in the same scope */
    struct Symbol *next_hashed; /* the same, of those in one list of the scope's table */
} Symbol;

typedef struct Scope {
    Symbol *newest;
    int count, room;
    Symbol **table; /* lists by hash, the newest first; a power of two of them */
    struct Scope *outer;
} Scope;

typedef struct Lower Lower;
typedef struct Layout Layout;

Symbol *find_symbol(const Scope *scope, const char *name);      /* in this or an outer scope; or NULL */
Symbol *find_symbol_here(const Scope *scope, const char *name); /* NULL */
Symbol *declare(Lower *l, Scope *scope, SymbolKind kind, const char *name, Loc loc);
Symbol *symbol_in_call(Symbol *symbol);      /* the dim or const that a block's is in this call; else itself */
const char *symbol_noun(SymbolKind kind);    /* "a dim" */
void unknown_name(Lower *l, const Ast *ast); /* these report it, with what may be meant */
void unknown_call(Lower *l, const Ast *ast);

#endif
