/* scene.h -- the values that are live while an op runs: those of its function, of its callers, and of the other
 * iterations of enclosing loops. */
#ifndef MPC_SCENE_H
#define MPC_SCENE_H

#include "region.h"

typedef struct {
    const Value *value;
    Region region;
    int64_t end; /* of the region */
    int last;    /* the number of the op that reads it last; -1: never read */
} Living;

/* All of them; a scene is done before those around it go on, so they lie one behind the other. */
typedef struct {
    Arena *arena;
    int room;
    Living *at;
} LivingStack;

/* Those of one function, or of the other iterations of one loop. */
typedef struct Scene {
    LivingStack *stack;
    int begin, count; /* on the stack */
    int now;          /* the present op, or the calling one */
    const struct Scene *around;
} Scene;

Scene scene_in(LivingStack *stack, const Scene *around); /* NULL: in none */

/* Only to a scene without another one in it. */
void add_living(Scene *scene, const Value *value, Region region, int last);

static inline Living *living(const Scene *scene, int i) { return &scene->stack->at[scene->begin + i]; }

void forget_dead(Scene *scene); /* removes values after their last reader */

#endif
