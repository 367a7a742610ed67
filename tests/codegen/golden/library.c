#include "runtime/rt.h"

#include "runtime/kernels/kernels.h"

static inline void *at(char *frame, int64_t offset) { return frame + offset; }

/* h.attn, gpt2.mdl:33:9: attend
 * q: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * k: f32[batch:2, key:70, kv:2, head:16]
 * v: f32[batch:2, key:70, kv:2, head:16]
 * y, result: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * lse, result: f32[batch:2, kv:2, group:3, seq:70]
 */
static void attend_0(const float *q, const float *k, const float *v, float *y, float *lse)
{
    const RtAttend shape = {
        .batch = 2,
        .queries = 70,
        .keys = 70,
        .heads = 2,
        .group = 3,
        .feature = 16,
        .q = { 20160, 288, 48, 16 },
        .k = { 2240, 32, 16, 0 },
        .v = { 2240, 32, 16, 0 },
        .y = { 6720, 96, 48, 16 },
        .lse = { 420, 1, 210, 70 },
        .type = RT_F32,
        .causal = true,
        .window = 0,
        .scale = 0.25f,
    };
    rt_attend(q, k, v, RT_NO_LOGITS, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, y, lse, shape);
}

/* h.attn, gpt2.mdl:33:9: attend_grad
 * q: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * k: f32[batch:2, key:70, kv:2, head:16]
 * v: f32[batch:2, key:70, kv:2, head:16]
 * y: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * lse: f32[batch:2, kv:2, group:3, seq:70]
 * dy: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * dq, result: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * dk, result: f32[batch:2, key:70, kv:2, head:16]
 * dv, result: f32[batch:2, key:70, kv:2, head:16]
 */
static void attend_grad_1(const float *q, const float *k, const float *v, const float *y, const float *lse,
                          const float *dy, float *dq, float *dk, float *dv, float *scratch)
{
    const RtAttend shape = {
        .batch = 2,
        .queries = 70,
        .keys = 70,
        .heads = 2,
        .group = 3,
        .feature = 16,
        .q = { 20160, 288, 48, 16 },
        .k = { 2240, 32, 16, 0 },
        .v = { 2240, 32, 16, 0 },
        .y = { 6720, 96, 48, 16 },
        .lse = { 420, 1, 210, 70 },
        .dy = { 6720, 96, 48, 16 },
        .dq = { 6720, 96, 48, 16 },
        .dk = { 2240, 32, 16, 0 },
        .dv = { 2240, 32, 16, 0 },
        .type = RT_F32,
        .causal = true,
        .window = 0,
        .scale = 0.25f,
    };
    rt_attend_grad(q, k, v, y, lse, dy, RT_NO_LOGITS, RT_NO_SEGMENT, RT_NO_SEGMENT, dq, dk, dv, scratch, shape);
}

/* h.attn, gpt2.mdl:33:9: rope
 * x: f32[batch:2, seq:70, kv:2, group:3, head:16]
 * y, result: f32[batch:2, seq:70, kv:2, group:3, head:16]
 */
static void rope_2(const float *x, float *y)
{
    const RtRope shape = {
        .outer = 2,
        .seq = 70,
        .middle = 6,
        .feature = 16,
        .x = { 20160, 288, 16 },
        .y = { 6720, 96, 16 },
        .type = RT_F32,
        .interleaved = false,
        .inverse = false,
        .base = 10000,
        .stretch = 2.5,
    };
    rt_rope(x, RT_NO_POSITION, y, shape);
}

/* rope: rope
 * x: f32[batch:2, key:70, kv:2, head:16]
 * y, result: f32[batch:2, key:70, kv:2, head:16]
 */
static void rope_3(const float *x, float *y)
{
    const RtRope shape = {
        .outer = 2,
        .seq = 70,
        .middle = 2,
        .feature = 16,
        .x = { 2240, 32, 16 },
        .y = { 2240, 32, 16 },
        .type = RT_F32,
        .interleaved = true,
        .inverse = true,
        .base = 10000,
        .stretch = 1,
    };
    rt_rope(x, RT_NO_POSITION, y, shape);
}

/* x, gpt2.mdl:30:9: gather
 * table: bf16[vocab:50~64, embed:24]
 * index: i32[batch:2, seq:70]
 * picked, result: bf16[batch:2, seq:70, embed:24]
 */
static void gather_4(const rt_bf16 *table, const int32_t *index, rt_bf16 *picked)
{
    const RtGather shape = {
        .pre = 1,
        .shared = 1,
        .rows = 50,
        .count = 140,
        .post = 24,
        .table = { 0, 0, 24 },
        .picked = { 0, 0, 24 },
        .index = { 0, 0, 1 },
        .table_type = RT_BF16,
        .picked_type = RT_BF16,
        .size = 50,
        .dim = "vocab",
        .where = "gpt2.mdl:30:9",
    };
    rt_gather(table, index, picked, shape);
}

/* scatter_add: scatter_add
 * picked: bf16[batch:2, seq:70, embed:24]
 * index: i32[batch:2, seq:70]
 * table, result: f32[vocab:50~64, embed:24]
 */
static void scatter_add_5(const rt_bf16 *picked, const int32_t *index, float *table)
{
    const RtGather shape = {
        .pre = 1,
        .shared = 1,
        .rows = 50,
        .count = 140,
        .post = 24,
        .table = { 0, 0, 24 },
        .picked = { 0, 0, 24 },
        .index = { 0, 0, 1 },
        .table_type = RT_F32,
        .picked_type = RT_BF16,
    };
    rt_scatter_add(picked, index, RT_NO_SUM, table, shape);
}

void create(Rt *rt);
void create(Rt *rt)
{
    (void)rt;
    (void)at;
}

void run(Rt *rt, char *frame, float *scratch);
void run(Rt *rt, char *frame, float *scratch)
{
    attend_0(at(frame, 0), at(frame, 161280), at(frame, 179200), at(frame, 261248), at(frame, 315008));
    attend_grad_1(at(frame, 0), at(frame, 161280), at(frame, 179200), at(frame, 261248), at(frame, 315008),
                  at(frame, 197120), at(frame, 318400), at(frame, 372160), at(frame, 390080), scratch);
    rope_2(at(frame, 0), at(frame, 408000));
    rope_3(at(frame, 161280), at(frame, 461760));
    gather_4(at(frame, 251456), at(frame, 250880), at(frame, 479680));
    scatter_add_5(at(frame, 254528), at(frame, 250880), at(frame, 486400));
    (void)rt;
    (void)scratch;
}
