/* types.c -- names, dims, types: properties of tensors that do not depend on ops. */
#include "ir.h"
#include "map.h"
#include "ranks.h"

#include <stdarg.h>
#include <string.h>

const char *const dtype_name[N_DTYPES] = {
    [F32] = "f32", [BF16] = "bf16", [F16] = "f16", [I32] = "i32", [BOOL] = "bool"
};

typedef struct {
    Name name; /* NULL: free */
    uint32_t hash;
    int length;
} NameSlot;

/* Every text once; open addressing, at most half full. */
struct NameTable {
    int count, room; /* room is a power of two */
    NameSlot *slot;
};

/* The text's slot, or a free one. */
static NameSlot *find_slot(const struct NameTable *table, const char *text, int length, uint32_t hash)
{
    for (uint32_t i = hash;; i++) {
        NameSlot *slot = &table->slot[i & (uint32_t)(table->room - 1)];
        if (!slot->name ||
            (slot->hash == hash && slot->length == length && memcmp(slot->name, text, (size_t)length) == 0))
            return slot;
    }
}

static void grow_table(Module *m)
{
    struct NameTable *old = m->names, *table = NEW(&m->arena, struct NameTable);
    table->room = old ? old->room * 2 : 256;
    table->slot = NEW_ARRAY(&m->arena, NameSlot, table->room);
    table->count = old ? old->count : 0;
    for (int i = 0; old && i < old->room; i++)
        if (old->slot[i].name)
            *find_slot(table, old->slot[i].name, old->slot[i].length, old->slot[i].hash) = old->slot[i];
    m->names = table;
}

Name intern(Module *m, const char *text, int length)
{
    if (!m->names || m->names->count * 2 >= m->names->room)
        grow_table(m);
    const uint32_t hash = hash_text(text, length);
    NameSlot *slot = find_slot(m->names, text, length, hash);
    if (!slot->name) {
        *slot = (NameSlot){ memcpy(arena_alloc(&m->arena, (size_t)length + 1, 1), text, (size_t)length), hash, length };
        m->names->count++;
    }
    return slot->name;
}

Name intern_text(Module *m, const char *text) { return intern(m, text, (int)strlen(text)); }

Name intern_format(Module *m, const char *format, ...)
{
    va_list args, again;
    char few[256], *text = few; /* nearly all of them fit */
    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(few, sizeof few, format, args);
    if (length >= (int)sizeof few) {
        text = arena_alloc(&m->arena, (size_t)length + 1, 1);
        vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    va_end(args);
    return intern(m, text, length);
}

int find_dim(const Type *type, Name name)
{
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name == name)
            return i;
    return -1;
}

bool has_name(const Names *names, Name name)
{
    for (int i = 0; i < names->count; i++)
        if (names->name[i] == name)
            return true;
    return false;
}

void add_name(Names *names, Name name)
{
    if (!has_name(names, name) && names->count < MAX_NAMES)
        names->name[names->count++] = name;
}

Names dim_names(const Type *type)
{
    Names names = { 0 };
    for (int i = 0; i < type->rank; i++)
        add_name(&names, type->dim[i].name);
    return names;
}

Names dims_lacking(const Type *of, const Type *in)
{
    Names names = { 0 };
    for (int i = 0; i < of->rank; i++)
        if (find_dim(in, of->dim[i].name) < 0)
            add_name(&names, of->dim[i].name);
    return names;
}

bool split_equal(Split a, Split b)
{
    return a.count == b.count && memcmp(a.axis, b.axis, (size_t)a.count) == 0 && a.parts == b.parts &&
           a.reversed == b.reversed && a.turn == b.turn && a.dealt == b.dealt;
}

bool dim_equal(const Dim *a, const Dim *b)
{
    return a->name == b->name && a->size == b->size && a->padded == b->padded && a->full == b->full &&
           a->zigzag == b->zigzag && split_equal(a->split, b->split);
}

bool same_dims(const Type *a, const Type *b)
{
    if (a->rank != b->rank || a->partial != b->partial || (a->partial && a->by != b->by))
        return false;
    for (int i = 0; i < a->rank; i++)
        if (!dim_equal(&a->dim[i], &b->dim[i]))
            return false;
    return true;
}

bool same_ranks(RankSet a, RankSet b) { return a.at == b.at && (!a.at || a.axis == b.axis); }

bool type_equal(const Type *a, const Type *b)
{
    return a->dtype == b->dtype && a->in_flight == b->in_flight && a->tier == b->tier && same_ranks(a->on, b->on) &&
           same_dims(a, b);
}

bool same_base(const Storage *a, const Storage *b)
{
    return a->base == b->base && (a->base != BY_POINTER || a->pointer == b->pointer);
}

void add_made_dim(Module *m, Name name, Making making, Name of)
{
    if (!m->made)
        m->made = NEW(&m->arena, Map), m->made->arena = &m->arena;
    if (map_get(m->made, name))
        return;
    MadeDim *dim = NEW(&m->arena, MadeDim);
    *dim = (MadeDim){ name, making, of, NULL };
    *(m->made_dims ? &m->last_made->next : &m->made_dims) = dim;
    m->last_made = dim;
    map_put(m->made, name, dim);
}

const MadeDim *made_dim(const Module *m, Name dim, Making making)
{
    const MadeDim *made = m->made ? map_get(m->made, dim) : NULL;
    return made && made->making == making ? made : NULL;
}

Name ruled_as(const Module *m, Name dim)
{
    const MadeDim *like = made_dim(m, dim, MADE_LIKE);
    return like ? like->of : dim;
}

const MadeDim *copies_dim(const Module *m, Name dim)
{
    for (const MadeDim *part; (part = made_dim(m, dim, MADE_CHUNK)) || (part = made_dim(m, dim, MADE_RUN));)
        dim = part->of;
    return made_dim(m, dim, MADE_COPIES);
}

int find_word(const char *const words[], int count, const char *text)
{
    for (int i = 1; i < count; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    return 0;
}

/* --- Attributes --------------------------------------------------------------------------------- */

static bool same_Name(Name a, Name b) { return a == b; }
static bool same_Dtype(Dtype a, Dtype b) { return a == b; }
static bool same_Axes(Axes a, Axes b) { return a == b; }
static bool same_RankSet(RankSet a, RankSet b) { return same_ranks(a, b); }
static bool same_Int(Int a, Int b) { return a == b; }
static bool same_Flag(Flag a, Flag b) { return a == b; }
static bool same_Zigzag(Zigzag a, Zigzag b) { return a == b; }
static bool same_ActionOrder(ActionOrder a, ActionOrder b) { return a == b; }
static bool same_Tier(Tier a, Tier b) { return a == b; }
static bool same_Purpose(Purpose a, Purpose b) { return a == b; }
static bool same_ProductRole(ProductRole a, ProductRole b) { return a == b; }
static bool same_Fp8(Fp8 a, Fp8 b) { return a == b; }

/* Compares bits: results of 0 and -0 differ, and NaN equals itself. */
static bool same_Number(Number a, Number b) { return memcmp(&a, &b, sizeof a) == 0; }

bool names_equal(const Names *a, const Names *b)
{
    return a->count == b->count && memcmp(a->name, b->name, (size_t)a->count * sizeof *a->name) == 0;
}

static bool same_Names(Names a, Names b) { return names_equal(&a, &b); }

static bool same_Dims(Dims a, Dims b)
{
    for (int i = 0; i < a.count && a.count == b.count; i++)
        if (!dim_equal(&a.dim[i], &b.dim[i]))
            return false;
    return a.count == b.count;
}

bool attrs_equal(const Attrs *a, const Attrs *b)
{
#define ATTR(key, kind, ops)                                                                                           \
    if (!same_##kind(a->key, b->key))                                                                                  \
        return false;
#include "attrs.def"
    return true;
}

/* --- Other types ---------------------------------------------------------------------------------- */

Type without_dim(Type type, Name name)
{
    int at = find_dim(&type, name);
    if (at < 0)
        return type;
    for (int i = at; i + 1 < type.rank; i++)
        type.dim[i] = type.dim[i + 1];
    type.dim[--type.rank] = (Dim){ 0 };
    return type;
}

Type with_dim_first(Type type, Dim dim)
{
    for (int i = type.rank < MAX_RANK ? type.rank : MAX_RANK - 1; i > 0; i--)
        type.dim[i] = type.dim[i - 1];
    type.dim[0] = dim;
    type.rank += type.rank < MAX_RANK;
    return type;
}

Type scalar_type(DType dtype) { return (Type){ .dtype = dtype }; }
bool is_half(DType dtype) { return dtype == BF16 || dtype == F16; }
bool is_float(DType dtype) { return dtype == F32 || is_half(dtype); }

int dtype_bytes(DType dtype)
{
    static const int bytes[N_DTYPES] = { [F32] = 4, [BF16] = 2, [F16] = 2, [I32] = 4, [BOOL] = 1 };
    return bytes[dtype];
}

DType dtype_named(Name name)
{
    DType dtype = 0;
    while (dtype < N_DTYPES && strcmp(name, dtype_name[dtype]) != 0)
        dtype++;
    return dtype;
}

int64_t element_count(const Type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= type->dim[i].size;
    return count;
}

int64_t split_count(const Module *m, Split split)
{
    int64_t count = 1;
    for (int i = 0; i < split.count; i++)
        count *= m->axis_size[split.axis[i]];
    return count;
}

/* What "3+9" says: the number of parts, the first of them, their sum, the largest, and which are not "-". */
typedef struct {
    int64_t count, size[MAX_SET_RANKS], sum, most;
    uint64_t ranks;
} Parts;

static Parts read_parts(Name parts)
{
    Parts p = { 0 };
    for (const char *text = parts; *text; text += *text == '+') {
        int64_t size = 0;
        if (*text == '-')
            text++;
        else if (p.count < MAX_SET_RANKS)
            p.ranks |= UINT64_C(1) << p.count;
        for (; *text >= '0' && *text <= '9'; text++)
            size = size * 10 + (*text - '0');
        if (p.count < MAX_SET_RANKS)
            p.size[p.count] = size;
        p.most = size > p.most ? size : p.most;
        p.sum += size;
        p.count++;
    }
    return p;
}

/* Each text is read once: passes ask for the same few very often. */
static const Parts *parts_of(const Module *m, Name text)
{
    Parts *parts = map_get(m->parts, text);
    if (!parts) {
        parts = NEW(m->parts->arena, Parts);
        *parts = read_parts(text);
        map_put(m->parts, text, parts);
    }
    return parts;
}

Name parts_text(Module *m, const int64_t *part, int64_t count)
{
    char *text = "";
    for (int64_t i = 0; i < count; i++)
        text = part[i] < 0 ? arena_text(&m->arena, "%s%s-", text, i ? "+" : "")
                           : arena_text(&m->arena, "%s%s%lld", text, i ? "+" : "", (long long)part[i]);
    return intern_text(m, text);
}

int64_t part_size(const Module *m, const Dim *dim, int64_t rank)
{
    return dim->split.parts ? parts_of(m, dim->split.parts)->size[rank] : local_size(m, dim);
}

int64_t part_first(const Module *m, const Dim *dim, int64_t rank)
{
    if (!dim->split.parts)
        return rank * local_size(m, dim);
    const Parts *parts = parts_of(m, dim->split.parts);
    int64_t before = 0;
    for (int64_t i = 0; i < rank; i++)
        before += parts->size[i];
    return dim->split.reversed ? parts->sum - before - parts->size[rank] : before;
}

uint64_t ranks_with_part(const Module *m, const Dim *dim)
{
    return dim->split.parts ? parts_of(m, dim->split.parts)->ranks : 0;
}

/* Are there as many parts as ranks, which together are the dim, on consecutive ranks? */
static bool has_right_parts(const Module *m, const Dim *dim)
{
    const Parts *parts = parts_of(m, dim->split.parts);
    const uint64_t gap =
        parts->ranks ? parts->ranks + (parts->ranks & -parts->ranks) : 0; /* a carry through the first run */
    return dim->split.count == 1 && !dim->zigzag && parts->count == split_count(m, dim->split) &&
           parts->sum == dim->size && dim->padded == dim->size && parts->count <= MAX_SET_RANKS &&
           !(parts->ranks & gap);
}

int64_t dealt_blocks(const Module *m, const Dim *dim)
{
    return (dim->zigzag ? dim->zigzag : dim->split.dealt) * m->axis_size[dim->split.axis[0]];
}

/* Blocks without padding, over one axis. */
static bool has_right_blocks(const Module *m, const Dim *dim)
{
    const Split *split = &dim->split;
    return split->count == 1 && !dim->zigzag && !split->turn && !split->parts && split->dealt > 1 &&
           split->dealt <= MAX_ZIGZAG && dim->padded == dim->size && dim->size % dealt_blocks(m, dim) == 0;
}

bool splits_evenly(const Module *m, const Dim *dim)
{
    if (dim->split.turn && (dim->split.count != 1 || dim->split.parts || dim->split.turn < 0 ||
                            dim->split.turn >= m->axis_size[dim->split.axis[0]]))
        return false;
    if (dim->split.dealt)
        return has_right_blocks(m, dim);
    if (dim->split.parts || dim->split.reversed)
        return dim->split.parts && has_right_parts(m, dim);
    const int64_t blocks = dim->zigzag && dim->split.count ? dealt_blocks(m, dim) : 1;
    return dim->padded >= dim->size && dim->padded % split_count(m, dim->split) == 0 && dim->padded % blocks == 0;
}

int64_t local_size(const Module *m, const Dim *dim)
{
    return dim->split.parts ? parts_of(m, dim->split.parts)->most : dim->padded / split_count(m, dim->split);
}

int64_t local_bytes(const Module *m, const Type *type)
{
    int64_t bytes = dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++)
        bytes *= local_size(m, &type->dim[i]);
    return bytes;
}

int64_t part_bytes(const Module *m, const Type *type, int64_t rank)
{
    const Dim *first = &type->dim[0];
    const bool has_parts = type->rank && first->split.parts && local_size(m, first);
    return has_parts ? local_bytes(m, type) / local_size(m, first) * part_size(m, first, rank) : local_bytes(m, type);
}

int64_t span_bytes(const Module *m, const Value *value)
{
    int64_t last = 0;
    for (int i = 0; i < value->type.rank; i++)
        last += (local_size(m, &value->type.dim[i]) - 1) * value->storage->stride[i];
    return (last + 1) * dtype_bytes(value->type.dtype);
}

bool has_dim(const Module *m, Name dim)
{
    for (const Func *f = m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            if (find_dim(&f->params.at[i]->type, dim) >= 0)
                return true;
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                if (find_dim(&op->results.at[i]->type, dim) >= 0)
                    return true;
    }
    return false;
}
