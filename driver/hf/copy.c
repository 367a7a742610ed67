/* copy.c -- strided copies. */
#include "copy.h"

#include <string.h>

typedef struct {
    int rank, width;
    const int64_t *size, *to_stride, *from_stride;
} Layout;

static void copy_row(const Layout *l, int64_t count, char *to, int64_t to_step, const char *from, int64_t from_step)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)(count * l->width));
    else if (l->width == 4)
        for (int64_t i = 0; i < count; i++)
            memcpy(to + 4 * i * to_step, from + 4 * i * from_step, 4);
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + 2 * i * to_step, from + 2 * i * from_step, 2);
}

/* The first size is the innermost axis of the tensor. */
static void copy_box(const Layout *l, int depth, char *to, const char *from)
{
    if (depth <= 0) {
        const bool is_scalar = l->rank == 0;
        copy_row(l, is_scalar ? 1 : l->size[0], to, is_scalar ? 1 : l->to_stride[0], from,
                 is_scalar ? 1 : l->from_stride[0]);
        return;
    }
    for (int64_t i = 0; i < l->size[depth]; i++)
        copy_box(l, depth - 1, to + i * l->to_stride[depth] * l->width, from + i * l->from_stride[depth] * l->width);
}

void move_in(const Move *move, const char *tensor, char *param, int width)
{
    const Layout l = { move->rank, width, move->size, move->param_stride, move->tensor_stride };
    copy_box(&l, move->rank - 1, param + move->param_at * width, tensor + move->tensor_at * width);
}

void move_out(const Move *move, const char *param, char *tensor, int width)
{
    const Layout l = { move->rank, width, move->size, move->tensor_stride, move->param_stride };
    copy_box(&l, move->rank - 1, tensor + move->tensor_at * width, param + move->param_at * width);
}
