/* scene.h -- the values that are live while an op runs: those of its function, of its callers, and of the other
 * iterations of enclosing loops. */
#ifndef MPC_SCENE_H
#define MPC_SCENE_H

#include "region.h"

/* A node of a search tree by address, in which each knows where the regions below it end. */
typedef struct Living {
    const Value *value;
    Region region;
    int64_t end, furthest; /* of the region; of all regions of the subtree */
    int last;              /* the number of the op that reads it last; -1: never read */
    uint32_t priority;     /* none below it has a higher one */
    struct Living *left, *right;
    struct Living *next; /* that dies with it; of free ones: the next free one */
} Living;

typedef struct {
    Arena *arena;
    Living *free;
    uint32_t random; /* priorities */
} LivingPool;

/* The values of one function, or of the other iterations of one loop. */
typedef struct Scene {
    LivingPool *pool;
    Living *root;
    Living **dying; /* by the number of the op that is the last to read them; NULL: all stay */
    int ops;        /* of the function */
    int now;        /* the present op, or the calling one */
    uint64_t ranks; /* that come here: those of all calls around it */
    const struct Scene *around;
} Scene;

Scene scene_in(LivingPool *pool, const Scene *around);                /* NULL: in none; no values yet */
Scene scene_of(LivingPool *pool, const Scene *around, const Func *f); /* forgets values after their last reader */
void end_scene(Scene *scene);                                         /* its values may no longer be used */

Living *add_living(Scene *scene, const Value *value, Region region, int last);
void remove_living(Scene *scene, Living *living); /* one whose `last` is the present op, or of a scene where all stay */

void next_op(Scene *scene); /* and forgets what the present one, or one before it, was the last to read */

/* One of the values whose extent meets the bytes from `at` to `end`, and that is `wanted`; NULL: none is. */
const Living *find_living(const Scene *scene, int64_t at, int64_t end,
                          bool (*wanted)(const void *data, const Scene *scene, const Living *living), const void *data);

#endif
