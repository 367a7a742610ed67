/* op_cases.h -- operands for testing every op of ops.def: used by test_gradients.c and test_sharding.c.
 *
 * A pointwise op is tested with the plain operands, which broadcast against each other; other ops, and those not
 * defined everywhere, have rows here.  An op without a case fails the tests.
 */
#ifndef MPC_OP_CASES_H
#define MPC_OP_CASES_H

#include "interp/interp_number.h"
#include "ir_test.h"

enum { MOST_OPERANDS = 9 };

/* An operand: its type, and the range of its elements. */
typedef struct {
    const char *type;
    double low, high;
} Operand;

typedef struct {
    OpKind kind;
    const char *attrs; /* NULL: none */
    Operand operand[MOST_OPERANDS];
} Case;

/* clang-format off */
#define TWO { "f32[i:4, j:3~4]", -1.5, 1.5 }, { "f32[j:3~4, k:6~8]", -1.5, 1.5 }
#define THREE TWO, { "f32[i:4, k:6~8]", -1.5, 1.5 }
#define POSITIVE { "f32[i:4, j:3~4]", 0.5, 2 }
#define QUERIES { "f32[b:2, s:8, g:2, h:2]", -1, 1 }
#define KEYS { "f32[b:2, t:8, h:2]", -1, 1 }
#define ROWS { "f32[b:2, s:8, g:2]", 1, 3 }
#define SEGMENTS { "i32[b:2, s:8]", 0, 3 }, { "i32[b:2, t:8]", 0, 3 }
#define ROUTES { "i32[i:2, b:2, k:6~8]", 0, 4 }, { "i32[b:2, k:6~8, i:2]", 0, 3 }
#define BIAS { "f32[s:8, g:2, t:8]", -1, 1 }
#define KEY_BIAS { "f32[b:2, t:8]", -1, 1 }
#define SINKS { "f32[g:2]", -1, 1 }
#define ATTEND { QUERIES, KEYS, KEYS }
#define ATTEND_GRAD { QUERIES, KEYS, KEYS, QUERIES, ROWS, QUERIES }

static const Case cases[] = {
    { OP_pow, NULL, { POSITIVE, { "f32[j:3~4, k:6~8]", -1.5, 1.5 } } },
    { OP_div, NULL, { POSITIVE, { "f32[j:3~4, k:6~8]", 0.5, 2 } } },
    { OP_div, NULL, { { "i32[i:4, j:3~4]", -20, 20 }, { "i32[j:3~4]", 1, 5 } } },
    { OP_mul, NULL, { TWO } },
    { OP_mul, NULL, { { "i32[i:4, j:3~4]", -20, 20 }, { "i32[j:3~4]", 1, 5 } } },
    { OP_add, NULL, { TWO } },
    { OP_add, NULL, { { "i32[i:4, j:3~4]", -20, 20 }, { "i32[j:3~4]", 1, 5 } } },
    { OP_sqrt, NULL, { POSITIVE } },
    { OP_rsqrt, NULL, { POSITIVE } },
    { OP_log, NULL, { POSITIVE } },
    { OP_where, NULL, { { "bool[i:4, j:3~4]", 0, 0 }, { "f32[j:3~4, k:6~8]", -1.5, 1.5 }, { "f32[i:4]", -1.5, 1.5 } } },
    { OP_cast, "{dtype=bf16}", { { "f32[i:4, j:3~4]", -20, 20 } } },
    { OP_cast, "{dtype=i32}", { { "f32[i:4, j:3~4]", -20, 20 } } },
    { OP_cast, "{dtype=f32}", { { "i32[i:4, j:3~4]", -20, 20 } } },
    { OP_cast, "{dtype=i32}", { { "bool[i:4, j:3~4]", 0, 0 } } },
    { OP_stop_gradient, NULL, { POSITIVE } },
    { OP_fold_key, NULL, { { "i32[]", -9, 9 }, { "i32[i:4, j:3~4]", 0, 9 } } },
    { OP_broadcast, "{dims=[j:3~4, k:6~8]}", { { "f32[i:4]", -1, 1 } } },
    { OP_reorder, "{order=k+i+j}", { { "f32[i:4, j:3~4, k:6~8]", -1, 1 } } },
    { OP_dropout, "{rate=0.4, instance=3}", { { "f32[i:4, batch:4, j:3~4]", 0.5, 1 }, { "i32[]", -9, 9 }, { "i32[]", 0, 9 } } },
    { OP_constant, "{value=2.5}", { { 0 } } },
    { OP_iota, "{dims=[i:6~8]}", { { 0 } } },
    { OP_dot, "{over=j}", { { "f32[i:4, b:4, j:3~4]", -1, 1 }, { "f32[j:3~4, b:4, k:6~8]", -1, 1 } } },
    { OP_dot, "{over=b+j, order=k+i, dtype=bf16}", { { "f32[i:4, b:4, j:3~4]", -1, 1 }, { "f32[j:3~4, b:4, k:6~8]", -1, 1 } } },
    { OP_dot, "{over=j}", { { "i32[i:4, j:3~4]", -9, 9 }, { "i32[j:3~4]", -9, 9 } } },
    { OP_dot_e4m3, "{over=j, dim=j, fp8=rounded, across=k}", { { "bf16[i:4, j:256]", 2, 2 }, { "bf16[j:256, k:128]", 3, 3 }, { "bf16[i:4, j:256]", 2, 2 }, { "bf16[j:256, k:128]", 3, 3 } } },
    { OP_sum, "{over=i+k}", { { "f32[i:4, j:3~4, k:6~8]", -1, 1 } } },
    { OP_max, "{over=i+k}", { { "f32[i:4, j:3~4, k:6~8]", -1, 1 } } },
    { OP_max, "{over=j}", { { "i32[i:4, j:3~4]", -9, 9 } } },
    { OP_min, "{over=i+k}", { { "f32[i:4, j:3~4, k:6~8]", -1, 1 } } },
    { OP_rename, "{dim=j, to=k}", { { "f32[i:4, j:3~4]", -1, 1 } } },
    { OP_slice, "{dim=j, index=2}", { { "f32[i:4, j:3~4, k:6~8]", -1, 1 } } },
    { OP_part, "{dim=j, dims=[k:4], index=2}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_split, "{dim=j, dims=[k:4, l:3]}", { { "f32[i:4, j:12, h:3~4]", -1, 1 } } },
    { OP_split, "{dim=j, dims=[k:4, l:3]}", { { "f32[i:4, j:10~12, h:3]", -1, 1 } } },
    { OP_split, "{dim=j, dims=[k:2, l:2, m:4]}", { { "bool[j:16]", 0, 0 } } },
    { OP_merge, "{over=j+k, dims=[l:12]}", { { "f32[i:3~4, j:4, k:3, h:2]", -1, 1 } } },
    { OP_merge, "{over=j+k, dims=[l:10~12]}", { { "f32[i:3, j:4, k:3, h:2]", -1, 1 } } },
    { OP_merge, "{over=i+j+k, dims=[l:24]}", { { "i32[i:4, j:2, k:3]", -9, 9 } } },
    { OP_pad, "{dim=j, dims=[k:6~8], index=1}", { { "f32[i:4, j:4]", -1, 1 } } },
    { OP_pad, "{dims=[k:6~8], index=5}", { { "f32[i:4]", -1, 1 } } },
    { OP_concat, "{dims=[j:6~8]}", { { "f32[i:4, j:4]", -1, 1 }, { "f32[i:4, j:2~4]", -1, 1 } } },
    { OP_concat, "{dims=[j:16]}", { { "f32[j:8, i:4]", -1, 1 }, { "f32[j:4, i:4]", -1, 1 }, { "f32[j:4, i:4]", -1, 1 } } },
    { OP_concat, "{dims=[j:16]}",
      { { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 },
        { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 }, { "f32[j:2, i:4]", -1, 1 } } },
    { OP_gather, "{dim=v}", { { "f32[i:4, v:6~8, e:4]", -1, 1 }, { "i32[b:2, s:4]", 0, 6 } } },
    { OP_gather, "{dim=v}", { { "f32[i:4, b:2, v:6~8, e:4]", -1, 1 }, { "i32[s:4, b:2]", 0, 6 } } },
    { OP_scatter_add, "{over=b+s, dims=[v:6~8]}", { { "f32[i:4, b:2, s:4]", -1, 1 }, { "i32[b:2, s:4]", 0, 6 } } },
    { OP_scatter_add, "{over=b+s, dims=[v:6~8]}",
      { { "f32[i:4, b:2, s:4]", -1, 1 }, { "i32[b:2, s:4]", 0, 6 }, { "f32[i:4, v:6~8]", -1, 1 } } },
    { OP_scatter_add, "{over=s, dims=[v:6~8]}", { { "f32[i:4, b:2, s:4]", -1, 1 }, { "i32[b:2, s:4]", 0, 6 } } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7}", ATTEND },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", ATTEND },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, causal=true, window=3}", ATTEND },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, window=2}", ATTEND },
    { OP_attend_grad, "{seq=s, key=t, feature=h, scale=0.7, causal=true, window=3}", ATTEND_GRAD },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, softcap=0.5}", ATTEND },
    { OP_attend_grad, "{seq=s, key=t, feature=h, scale=0.7, softcap=0.5}", ATTEND_GRAD },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, softcap=0.5}", { QUERIES, KEYS, KEYS, BIAS } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", { QUERIES, KEYS, KEYS, KEY_BIAS, SEGMENTS } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", { QUERIES, KEYS, KEYS, SINKS } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7}", { QUERIES, KEYS, KEYS, BIAS, SINKS, SEGMENTS } },
    { OP_attend_grad, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", { QUERIES, KEYS, KEYS, QUERIES, ROWS, QUERIES, BIAS, SEGMENTS } },
    { OP_attend_bias_grad, "{seq=s, key=t, feature=h, scale=0.7, softcap=0.5}", { QUERIES, KEYS, KEYS, ROWS, ROWS, QUERIES, BIAS } },
    { OP_attend_bias_grad, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", { QUERIES, KEYS, KEYS, ROWS, ROWS, QUERIES, KEY_BIAS, SEGMENTS } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7}", { QUERIES, KEYS, KEYS, SEGMENTS } },
    { OP_attend, "{seq=s, key=t, feature=h, scale=0.7, causal=true, window=5}", { QUERIES, KEYS, KEYS, SEGMENTS } },
    { OP_attend_grad, "{seq=s, key=t, feature=h, scale=0.7, causal=true}", { QUERIES, KEYS, KEYS, QUERIES, ROWS, QUERIES, SEGMENTS } },
    { OP_rope, "{seq=s, feature=h, base=100}", { { "f32[b:2, s:6~8, h:4]", -1, 1 } } },
    { OP_rope, "{seq=s, feature=h, base=100, interleaved=true}", { { "f32[s:6~8, h:4, b:2]", -1, 1 } } },
    { OP_rope, "{seq=s, feature=h, base=100, stretch=2.5}", { { "f32[b:2, s:6~8, h:4]", -1, 1 } } },
    { OP_rope, "{seq=s, feature=h, base=100, inverse=true}", { { "f32[b:2, s:6~8, h:4]", -1, 1 } } },
    { OP_rope, "{seq=s, feature=h, base=100}", { { "f32[b:2, s:6~8, h:4]", -1, 1 }, { "i32[b:2, s:6~8]", -9, 9 } } },
    { OP_rope, "{seq=s, feature=h, base=100, interleaved=true}", { { "f32[b:2, g:4, s:6~8, h:4]", -1, 1 }, { "i32[b:2]", -9, 9 } } },
    { OP_cumsum, "{dim=j}", { { "f32[i:4, j:6~8, k:4]", -1, 1 } } },
    { OP_cumsum, "{dim=j, exclusive=true}", { { "bf16[i:4, j:6~8]", -1, 1 } } },
    { OP_cumsum, "{dim=j, reverse=true}", { { "i32[i:4, j:6~8]", -9, 9 } } },
    { OP_cummax, "{dim=j, exclusive=true}", { { "i32[i:4, j:6~8, k:4]", -9, 9 } } },
    { OP_cummax, "{dim=j, reverse=true}", { { "i32[i:4, j:6~8]", -9, 9 } } },
    { OP_top_k, "{dim=j, dims=[k:2]}", { { "f32[i:4, j:6~8, h:2]", -1, 1 } } },
    { OP_place, "{over=b+s, dims=[e:4]}", { { "i32[i:2, s:6~8, b:2]", 0, 4 } } },
    { OP_dispatch, "{over=b+k, dims=[e:4, s:2]}", { { "f32[b:2, i:2, h:3~4]", -1, 1 }, ROUTES } },
    { OP_dispatch, "{over=b+i+k, dims=[e:4, s:2]}", { { "f32[k:6~8, h:3~4, b:2, i:2]", -1, 1 }, ROUTES } },
    { OP_combine, "{dim=e, key=s}", { { "f32[e:4, s:2, h:3~4]", -1, 1 }, ROUTES } },
    { OP_combine, "{dim=e, key=s}", { { "f32[i:2, h:3~4, s:2, e:4]", -1, 1 }, ROUTES } },
    { OP_collect, "{dim=e, key=s, over=k}", { { "f32[e:4, s:2, h:3~4]", -1, 1 }, ROUTES, { "f32[k:6~8, b:2]", -1, 1 } } },
    { OP_collect, "{dim=e, key=s, over=k+b}", { { "f32[i:2, h:3~4, s:2, e:4]", -1, 1 }, ROUTES } },
    { OP_all_reduce, NULL, { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_all_gather, "{dim=j}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_reduce_scatter, "{dim=j}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_all_to_all, "{dim=j, to=i}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_rotate, "{dim=j, index=1}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_local_slice, "{dim=j}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_move, "{tier=disk}", { { "f32[i:4, j:6~8]", -1, 1 } } },
    { OP_reshard, "{dims=[i:4, j:6~8]}", { { "f32[i:4, j:6~8]", -1, 1 } } },
};
/* clang-format on */

static const Case plain_case = { N_OPS, NULL, { THREE } };

static inline bool is_between_stages(OpKind kind) { return kind == OP_send || kind == OP_hold || kind == OP_pend; }

/* Calls `test` for each case of each op but calls and loops, which mean what their functions mean, and `wait`, which is
 * only behind a collective that was started, and those between stages (test_interp.c). */
static inline void each_case(void (*test)(const Case *))
{
    for (int kind = 0; kind < N_OPS; kind++) {
        const OpInfo *row = &op_table[kind];
        int tried = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (cases[i].kind == (OpKind)kind) {
                test(&cases[i]);
                tried++;
            }
        if (row->family == CONTROL || kind == OP_wait || is_between_stages(kind) || tried)
            continue;
        if (row->family != POINTWISE)
            fail_msg("%s needs a row in op_cases.h", row->name);
        Case c = plain_case;
        c.kind = (OpKind)kind;
        for (int i = row->args; i < 3; i++)
            c.operand[i].type = NULL;
        test(&c);
    }
}

/* The module of a case, and the types of its operands there. */
typedef struct {
    Text *text;
    Module *m;
    int operands;
    Type type[MOST_OPERANDS];
    Attrs attrs;
} Trial;

static inline Trial begin_trial(const Case *c, const char *module)
{
    Trial t = { .text = good_text(module) };
    t.m = t.text->m;
    for (; t.operands < MOST_OPERANDS && c->operand[t.operands].type; t.operands++)
        t.type[t.operands] = type_of_text(t.m, c->operand[t.operands].type);
    if (c->attrs)
        t.attrs = attrs_of_text(t.m, c->kind, c->attrs);
    return t;
}

/* A function of the operands; NULL if the op refuses them. */
static inline Func *make_func(Trial *t, const Case *c, const char *name, Op **op)
{
    Func *f = add_func(t->m, intern_text(t->m, name), PLAIN);
    Builder b = { .module = t->m, .func = f };
    for (int i = 0; i < t->operands; i++)
        add_param(t->m, f, intern_format(t->m, "%c", 'a' + i), t->type[i]);
    *op = try_build(&b, c->kind, t->attrs, t->operands, f->params.at);
    for (int i = 0; *op && i < (*op)->results.count; i++)
        push_value(&t->m->arena, &f->results, (*op)->results.at[i]);
    return *op ? f : NULL;
}

static inline void random_operands(const Trial *t, const Case *c, Tensor args[])
{
    for (int i = 0; i < t->operands; i++)
        args[i] =
            random_tensor((const char[]){ (char)('a' + i), 0 }, &t->type[i], c->operand[i].low, c->operand[i].high);
}

#endif
