/* scene.c -- see scene.h.
 *
 * A program may have tens of thousands of live values, and each write is compared with those that it meets: they are in
 * a treap (R. Seidel, C. R. Aragon, "Randomized search trees", 1996), ordered by address.
 */
#include "scene.h"

Scene scene_in(LivingPool *pool, const Scene *around)
{
    return (Scene){ .pool = pool, .ranks = around ? around->ranks : UINT64_MAX, .around = around };
}

Scene scene_of(LivingPool *pool, const Scene *around, const Func *f)
{
    Scene scene = scene_in(pool, around);
    for (const Op *op = f->first; op; op = op->next)
        scene.ops++;
    scene.dying = NEW_ARRAY(pool->arena, Living *, scene.ops + 1);
    return scene;
}

static void release(LivingPool *pool, Living *living)
{
    living->next = pool->free;
    pool->free = living;
}

static void release_all(LivingPool *pool, Living *living)
{
    if (!living)
        return;
    release_all(pool, living->left);
    release_all(pool, living->right);
    release(pool, living);
}

void end_scene(Scene *scene)
{
    release_all(scene->pool, scene->root);
    scene->root = NULL;
}

/* --- The tree --------------------------------------------------------------------------------------- */

static bool is_before(const Living *a, const Living *b)
{
    return a->region.at != b->region.at ? a->region.at < b->region.at : (uintptr_t)a < (uintptr_t)b;
}

static void find_furthest(Living *living)
{
    living->furthest = living->end;
    if (living->left && living->left->furthest > living->furthest)
        living->furthest = living->left->furthest;
    if (living->right && living->right->furthest > living->furthest)
        living->furthest = living->right->furthest;
}

/* Those before `at`, and those after it. */
static void split_at(Living *tree, const Living *at, Living **before, Living **after)
{
    if (!tree) {
        *before = *after = NULL;
        return;
    }
    if (is_before(tree, at)) {
        split_at(tree->right, at, &tree->right, after);
        *before = tree;
    } else {
        split_at(tree->left, at, before, &tree->left);
        *after = tree;
    }
    find_furthest(tree);
}

static Living *joined(Living *before, Living *after)
{
    if (!before || !after)
        return before ? before : after;
    if (before->priority > after->priority) {
        before->right = joined(before->right, after);
        find_furthest(before);
        return before;
    }
    after->left = joined(before, after->left);
    find_furthest(after);
    return after;
}

static Living *inserted(Living *tree, Living *living)
{
    if (!tree || living->priority > tree->priority) {
        split_at(tree, living, &living->left, &living->right);
        tree = living;
    } else if (is_before(living, tree)) {
        tree->left = inserted(tree->left, living);
    } else {
        tree->right = inserted(tree->right, living);
    }
    find_furthest(tree);
    return tree;
}

static Living *without(Living *tree, const Living *living)
{
    if (tree == living)
        return joined(tree->left, tree->right);
    if (is_before(living, tree))
        tree->left = without(tree->left, living);
    else
        tree->right = without(tree->right, living);
    find_furthest(tree);
    return tree;
}

/* --- Values ------------------------------------------------------------------------------------------- */

static uint32_t next_random(LivingPool *pool)
{
    pool->random = pool->random * 1664525u + 1013904223u;
    return pool->random;
}

static Living *new_living(LivingPool *pool)
{
    Living *living = pool->free;
    if (!living)
        return NEW(pool->arena, Living);
    pool->free = living->next;
    return living;
}

static Living *insert(Scene *scene, const Value *value, Region region, int last)
{
    Living *living = new_living(scene->pool);
    *living = (Living){ .value = value, .region = region, .end = region_end(&region), .last = last };
    living->priority = next_random(scene->pool);
    scene->root = inserted(scene->root, living);
    return living;
}

Living *add_living(Scene *scene, const Value *value, Region region, int last)
{
    Living *living = insert(scene, value, region, last);
    const int dies = last > scene->now ? last : scene->now;
    if (scene->dying && dies < scene->ops) {
        living->next = scene->dying[dies];
        scene->dying[dies] = living;
    }
    return living;
}

void remove_living(Scene *scene, Living *living)
{
    Living **list = scene->dying ? &scene->dying[scene->now] : NULL;
    while (list && *list && *list != living)
        list = &(*list)->next;
    if (list && *list)
        *list = living->next;
    scene->root = without(scene->root, living);
    release(scene->pool, living);
}

void next_op(Scene *scene)
{
    for (Living *living = scene->dying[scene->now], *next; living; living = next) {
        next = living->next;
        scene->root = without(scene->root, living);
        release(scene->pool, living);
    }
    scene->dying[scene->now++] = NULL;
}

typedef struct {
    const Scene *scene;
    int64_t at, end;
    bool (*wanted)(const void *data, const Scene *scene, const Living *living);
    const void *data;
} Search;

static const Living *search(const Search *s, const Living *tree)
{
    if (!tree || tree->furthest <= s->at)
        return NULL;
    const Living *found = search(s, tree->left);
    if (found || tree->region.at >= s->end)
        return found;
    return tree->end > s->at && s->wanted(s->data, s->scene, tree) ? tree : search(s, tree->right);
}

const Living *find_living(const Scene *scene, int64_t at, int64_t end,
                          bool (*wanted)(const void *data, const Scene *scene, const Living *living), const void *data)
{
    const Search s = { scene, at, end, wanted, data };
    return search(&s, scene->root);
}
