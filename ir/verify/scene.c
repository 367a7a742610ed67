/* scene.c -- see scene.h. */
#include "scene.h"

#include <string.h>

Scene scene_in(LivingStack *stack, const Scene *around)
{
    return (Scene){ .stack = stack, .begin = around ? around->begin + around->count : 0, .around = around };
}

static void grow(LivingStack *stack)
{
    Living *more = NEW_ARRAY(stack->arena, Living, stack->room ? 2 * stack->room : 256);
    if (stack->room)
        memcpy(more, stack->at, (size_t)stack->room * sizeof *more);
    stack->room = stack->room ? 2 * stack->room : 256;
    stack->at = more;
}

void add_living(Scene *scene, const Value *value, Region region, int last)
{
    if (scene->begin + scene->count == scene->stack->room)
        grow(scene->stack);
    *living(scene, scene->count++) = (Living){ value, region, region_end(&region), last };
}

void forget_dead(Scene *scene)
{
    int kept = 0;
    for (int i = 0; i < scene->count; i++)
        if (living(scene, i)->last >= scene->now) {
            if (kept != i)
                *living(scene, kept) = *living(scene, i);
            kept++;
        }
    scene->count = kept;
}
