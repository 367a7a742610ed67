/* train.h -- `train { }`: settings, and which parameters are trained by which optimizer. */
#ifndef MPC_TRAIN_H
#define MPC_TRAIN_H

#include "elaborate/lowering.h"

/* A dim of a parameter that a product contracts, or that both of its operands keep. */
typedef struct Contraction {
    Name dim;
    int at; /* of a parameter: which of its dims, for names may change (router.c); -1: it has none like it */
    bool kept;
    bool is_table; /* the parameter is a table of positions */
    struct Contraction *next;
} Contraction;

/* Names of parameters in a setting, with * for any text. */
typedef struct Pattern {
    const char *text;
    struct Pattern *next;
} Pattern;

/* An optimizer with its arguments, for the parameters that match. */
typedef struct Group {
    const Ast *ast;          /* the A_GROUP; NULL: all parameters that are in no group */
    const Pattern *patterns; /* once the parameters are known */
    const Ast *declared;     /* the A_OPTIMIZER; NULL after an error */
    Source *text;            /* that of `declared`, if mpc has it; NULL: the file */
    Constant *argument;      /* in the order of `declared` */
    bool sets_decay;         /* states weight_decay, for all of its parameters */
    struct Group *next;
} Group;

/* What is known of parameters and their optimizers. */
typedef struct Optimizing {
    ValueOrigin freeze, trained; /* settings of train, read when the parameters are known */
    Group *groups;               /* the first is for all other parameters */
    Map contracted;              /* of the path of a parameter: Contraction */
} Optimizing;

void read_settings(Lower *l); /* before the model is lowered */
void add_group(Lower *l, const Ast *ast);
void read_optimizers(Lower *l, const ValueOrigin *said, const char *otherwise);

/* When the parameters are known: */
void decide_decay(Lower *l);
void freeze_params(Lower *l);
void match_groups(Lower *l);
void lower_updates(Lower *l); /* after all functions */

Group *group_for(const Lower *l, const Param *param);
double rate_argument(const Group *group); /* its lr */
bool matches_any(const Pattern *pattern, const Param *param);
const Pattern *list_patterns(Lower *l, const Ast *list); /* of text with commas; reports those that match nothing */
Matrix matrix_of(const Lower *l, const Param *param);    /* by what contracts it */

#endif
