/* instances.h -- instances of blocks: names, paths, and those that have several uses.  See instances.c. */
#ifndef MPC_INSTANCES_H
#define MPC_INSTANCES_H

#include "lowering.h"

/* An instance that has a name, and any number of uses. */
struct NamedInstance {
    Symbol *block;
    Name path, stars;
    Body *frame;                  /* where it is named */
    const NamedInstance *mean_of; /* the instance whose weights its own are running means of; NULL: none */
    double share;                 /* of the old mean */
};

/* A call of such an instance, or a frozen call of a block, while the body is lowered. */
struct Use {
    const NamedInstance *of; /* NULL: of a block */
    Body *at;                /* where the call is */
    bool frozen;             /* it, or one around it: parameters are constants, and states are not updated */
    const Use *outer;
};

bool names_instance(const Lower *l, const Ast *ast);                    /* NAME = BLOCK */
NamedInstance *name_instance(Lower *l, const Ast *name, Symbol *block); /* NULL after reporting */
void lower_named(Lower *l, const Ast *ast);                             /* such a statement */
Symbol *called_symbol(const Lower *l, const char *name); /* the block or instance of that name; NULL: there is none */
Symbol *block_called(Symbol *called);
void refuse_as_block(Lower *l, const Ast *call); /* reports what only a call of a block says */

bool is_free_instance(Lower *l, Symbol *block, const char *name, Loc loc); /* notes it; else reports */
Name instance_path(Lower *l, const char *name);
Name instance_stars(Lower *l, const char *name);

const Use *instance_around(const Use *use); /* the innermost use of an instance with a name; NULL: there is none */
const Body *where_named(const Body *frame, const Use **use); /* of the function of a use; else that function itself */
bool is_frozen_use(const Lower *l);

/* Of a parameter in a use: is it as other uses of the instance have declared it?  Else reports.  It is frozen as long
 * as all uses are. */
bool share_param(Lower *l, Name full, const Type *type, Param *param, Loc at);

Name join_path(Lower *l, Name path, const char *name);

#endif
