/* interp_storage.c -- the reference interpreter's memory: checks that readers find every value in its storage.
 *
 * After the memory pass a program is run on values, and also in one arena for each rank, byte for byte like the
 * generated program: the result of an op is written to its storage; an operand is read from there and must equal the
 * computed value.  This detects overlap of two live values, a wrong stride, or state that is overwritten too early, at
 * the first op that would read something else.
 *
 * Addresses are bytes from the arena's start, the same on all ranks: shards are of one size in memory.
 */
#include "flight.h"
#include "interp_shards.h"
#include "micro.h"
#include "split_loop.h"
#include "storage.h"
#include "target.h"
#include "tier.h"

#include <string.h>

enum { WIDEST = 4 }; /* bytes of an element */

/* The element that begins at a byte of a rank's arena. */
typedef struct {
    double value;
    const Value *writer; /* whose element covers this byte; NULL: none */
    const Value *reader; /* by the op whose number is `when` */
    int64_t when;
    int8_t width; /* bytes of the element that begins here; 0: none does */
} Cell;

/* A started collective: until its wait, its operand may not be written, nor its result read or written. */
typedef struct Flight {
    const Op *op; /* NULL: completed */
    Sharded operand;
    int64_t from, to; /* addresses */
    struct Flight *next;
} Flight;

struct Memory {
    int64_t bytes;
    int64_t when; /* number of the op being run */
    Cell **rank;
    Flight *flights;
    const Func *guarded; /* the step, while another program runs; else NULL */
    struct {
        const Value *read, *written;
        int64_t when;
        bool may;
    } over; /* the last result of may_write_over */
};

/* --- Addresses ---------------------------------------------------------------------------------- */

int64_t address_of(const Interp *in, const Value *value)
{
    const Storage *storage = value->storage;
    return base_address(storage, in->now.base, in->now.pointer) + storage->at;
}

/* The address of each element of a rank's shard, in order, for a tensor at `address` with the strides of `value`. */
typedef struct {
    const Shard *shard;
    const Value *value;
    int64_t at[MAX_RANK], address;
} Cursor;

static Cursor first_element(const Shard *shard, const Value *value, int64_t address)
{
    return (Cursor){ .shard = shard, .value = value, .address = address };
}

static void next_element(Cursor *c)
{
    const int64_t *stride = c->value->storage->stride;
    const int width = dtype_bytes(c->value->type.dtype);
    for (int i = c->value->type.rank - 1; i >= 0; i--) {
        c->address += stride[i] * width;
        if (++c->at[i] < c->shard->size[i])
            return;
        c->address -= stride[i] * width * c->shard->size[i];
        c->at[i] = 0;
    }
}

static bool has_place(Interp *in, const Value *value)
{
    return value->storage ? true : cannot_run(in, "%%%s has no storage", value->name);
}

bool is_inside(Interp *in, const Value *value, int64_t address, int64_t bytes)
{
    if (address >= 0 && address + bytes <= in->memory->bytes)
        return true;
    return cannot_run(in, "%%%s is outside of the arena: at byte %lld of %lld", value->name, (long long)address,
                      (long long)in->memory->bytes);
}

/* --- Reading and writing ------------------------------------------------------------------------- */

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || a == b; }

/* Another value with an element in these bytes; NULL: none. */
static const Value *other_writer(const Cell *cell, const Value *value, int width)
{
    for (int i = 0; i < width; i++)
        if (cell[i].writer && cell[i].writer != value)
            return cell[i].writer;
    return cell->writer;
}

/* A split loop writes the copies that a rank has, and not the rest of the memory for those of the largest. */
static bool is_unwritten(const Interp *in, const Cursor *c, int rank)
{
    for (int i = 0; i < c->value->type.rank; i++) {
        const Dim *dim = &c->value->type.dim[i];
        if (dim->split.parts && c->at[i] >= part_size(in->m, dim, block_of(in, dim, rank)))
            return true;
    }
    return false;
}

static bool read_shard(Interp *in, const Value *value, int64_t address, const Shard *shard, int rank)
{
    const int width = dtype_bytes(value->type.dtype);
    Cursor c = first_element(shard, value, address);
    for (int64_t n = 0; n < shard->count; n++, next_element(&c)) {
        if (!is_inside(in, value, c.address, width))
            return false;
        Cell *cell = &in->memory->rank[rank][c.address];
        cell->when = in->memory->when;
        cell->reader = value;
        if ((cell->width == width && same_bits(cell->value, shard->data[n])) || is_unwritten(in, &c, rank))
            continue;
        const Value *other = other_writer(cell, value, width);
        return cannot_run(in, "element %lld of %%%s is not at byte %lld of rank %d: %s%s", (long long)n, value->name,
                          (long long)c.address, rank,
                          other ? "it was overwritten by %" : "nothing has been written there",
                          other ? other->name : "");
    }
    return true;
}

static bool read_value(Interp *in, const Value *value, int64_t address, const Sharded *held)
{
    bool good = has_place(in, value);
    for (int rank = 0; good && rank < in->ranks; rank++)
        good = !rank_holds(in, &value->type, rank) || read_shard(in, value, address, &held->shard[rank], rank);
    return good;
}

/* Invalidates all elements that overlap these bytes. */
static void forget_bytes(Cell *cells, int64_t from, int64_t bytes)
{
    for (int64_t at = from > WIDEST ? from - WIDEST : 0; at < from; at++)
        if (at + cells[at].width > from)
            cells[at].width = 0;
    for (int64_t at = from; at < from + bytes; at++) {
        cells[at].width = 0;
        cells[at].writer = NULL;
    }
}

static bool find_whether_over(Interp *in, const Value *read, const Value *written, int64_t address)
{
    const Func *kernel = in->op ? kernel_called_by(in->m, in->op) : NULL;
    bool is_kernel = kernel && same_dims(&read->type, &written->type);
    bool is_own = in->op && info(in->op)->traits & IN_PLACE && index_of(&in->op->args, read) >= 0 &&
                  (!in->op->attrs.started || replaces(in->op, read));
    bool is_sum = in->op && sum_before(in->op) == read;
    bool same = (is_kernel || is_own || is_sum) && dtype_bytes(read->type.dtype) == dtype_bytes(written->type.dtype) &&
                address_of(in, read) == address;
    for (int i = 0; same && i < read->type.rank; i++)
        same = local_size(in->m, &read->type.dim[i]) == 1 || read->storage->stride[i] == written->storage->stride[i];
    for (int i = 0; same && is_kernel && i < in->op->args.count; i++)
        same = arg(in->op, i) != read || !is_read_after_writing(in, kernel, kernel->params.at[i]);
    return same;
}

/* A kernel may overwrite an operand only element by element: the same element of a tensor with the same storage layout,
 * where dims of one element on each rank may have any stride.  Some collectives may overwrite their operand,
 * and a scatter_add the sum that it goes on with. */
static bool may_write_over(Interp *in, const Value *read, const Value *written, int64_t address)
{
    Memory *memory = in->memory;
    if (memory->over.read != read || memory->over.written != written || memory->over.when != memory->when) {
        memory->over.may = find_whether_over(in, read, written, address);
        memory->over.read = read;
        memory->over.written = written;
        memory->over.when = memory->when;
    }
    return memory->over.may;
}

static bool write_shard(Interp *in, const Value *value, int64_t address, const Shard *shard, int rank)
{
    const int width = dtype_bytes(value->type.dtype);
    Cursor c = first_element(shard, value, address);
    for (int64_t n = 0; n < shard->count; n++, next_element(&c)) {
        if (!is_inside(in, value, c.address, width))
            return false;
        Cell *cells = in->memory->rank[rank];
        for (int64_t at = c.address; at < c.address + width; at++)
            if (cells[at].when == in->memory->when && cells[at].reader &&
                !may_write_over(in, cells[at].reader, value, address))
                return cannot_run(in, "it writes %%%s at byte %lld of rank %d, where it reads %%%s", value->name,
                                  (long long)at, rank, cells[at].reader->name);
        forget_bytes(cells, c.address, width);
        cells[c.address].value = shard->data[n];
        cells[c.address].width = (int8_t)width;
        for (int i = 0; i < width; i++)
            cells[c.address + i].writer = value;
    }
    return true;
}

static bool write_value(Interp *in, const Value *value, int64_t address, const Sharded *held)
{
    bool good = has_place(in, value);
    for (int rank = 0; good && rank < in->ranks; rank++)
        good = !rank_holds(in, &value->type, rank) || write_shard(in, value, address, &held->shard[rank], rank);
    return good;
}

static bool forget_region(Interp *in, const Value *named, int64_t from, int64_t bytes)
{
    if (bytes && !is_inside(in, named, from, bytes))
        return false;
    for (int rank = 0; rank < in->ranks; rank++)
        if (rank_runs(in, rank))
            forget_bytes(in->memory->rank[rank], from, bytes);
    return true;
}

/* --- Around an op ---------------------------------------------------------------------------------- */

/* Invalidates the scratch memory of the op's kernel. */
static bool use_scratch(Interp *in, const Op *op)
{
    int64_t bytes = in->m->target->scratch_bytes(in->m, op);
    return !bytes || !op->results.count || forget_region(in, result(op), in->now.base + op->attrs.frame, bytes);
}

/* The flight that writes to the address, or a free entry; NULL: none. */
static Flight *flight_to(const Memory *memory, int64_t address)
{
    Flight *landed = NULL;
    for (Flight *flight = memory->flights; flight; flight = flight->next)
        if (!flight->op)
            landed = flight;
        else if (flight->to == address)
            return flight;
    return landed;
}

static void take_off(Interp *in, const Op *op, const Sharded *operand)
{
    const int64_t to = address_of(in, result(op));
    Flight *flight = flight_to(in->memory, to);
    if (!flight) {
        flight = NEW(&in->arena, Flight);
        flight->next = in->memory->flights;
        in->memory->flights = flight;
    }
    flight->op = op;
    flight->operand = *operand;
    flight->from = address_of(in, arg(op, 0));
    flight->to = to;
}

/* Completes a collective: checks that its operand and result have not been touched since its start. */
static bool land(Interp *in, const Op *wait, const Sharded *result)
{
    const Value *started = arg(wait, 0);
    Flight *flight = flight_to(in->memory, address_of(in, started));
    const Op *op = flight ? flight->op : NULL;
    if (!op)
        return cannot_run(in, "its collective has not been started");
    flight->op = NULL;
    return read_value(in, arg(op, 0), flight->from, &flight->operand) && read_value(in, started, flight->to, result);
}

/* Is its result the memory of its operands? */
static bool shows_memory(const Interp *in, const Op *op)
{
    return info(op)->family == VIEW || lies_in_place(in->m, op);
}

/* Views are checked at their readers; operands of a call at the ops of the callee.  Collectives of one bucket, which
 * are one message, are run one after the other: the runtime packs all operands before it writes any result. */
bool read_operands(Interp *in, const Op *op, const Sharded args[])
{
    in->memory->when++;
    if (info(op)->traits & WAITS)
        return has_place(in, arg(op, 0)) && land(in, op, &args[0]);
    if (shows_memory(in, op) || function_called_by(in->m, op))
        return true;
    bool good = use_scratch(in, op);
    if (op->attrs.started && has_place(in, arg(op, 0)) && has_place(in, result(op)))
        take_off(in, op, &args[0]);
    for (int i = 0; good && i < op->args.count; i++)
        good = has_place(in, arg(op, i)) && read_value(in, arg(op, i), address_of(in, arg(op, i)), &args[i]);
    return good;
}

/* A view that shows padding, too: zeros, for the interpreter. */
static bool write_padding(Interp *in, const Op *view, const Sharded *shown)
{
    const Value *x = arg(view, 0);
    const int at = info(view)->traits & FOLDS && view->attrs.dim ? find_dim(&x->type, view->attrs.dim) : -1;
    return at < 0 || x->type.dim[at].padded == x->type.dim[at].size ||
           write_value(in, result(view), address_of(in, result(view)), shown);
}

bool write_results(Interp *in, const Op *op, const Sharded results[])
{
    const bool is_call = function_called_by(in->m, op) != NULL; /* then the callee has written them */
    bool good = true;
    for (int i = 0; good && i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        good = has_place(in, value);
        if (good && info(op)->family == VIEW)
            good = write_padding(in, op, &results[i]);
        else if (good && !shows_memory(in, op) && results[i].shard && !(is_call && is_left_out(in, value)))
            good = (is_call ? read_value : write_value)(in, value, address_of(in, value), &results[i]);
    }
    return good && (is_call || use_scratch(in, op));
}

/* --- Calls and loops --------------------------------------------------------------------------------- */

void copy_bytes(Interp *in, int64_t from, int64_t to, int64_t bytes)
{
    for (int rank = 0; rank < in->ranks && from != to; rank++) {
        if (!rank_runs(in, rank))
            continue;
        Cell *cells = in->memory->rank[rank];
        Cell *copy = NEW_ARRAY(&in->arena, Cell, bytes + 1);
        memcpy(copy, &cells[from], (size_t)bytes * sizeof *copy);
        forget_bytes(cells, to, bytes);
        memcpy(&cells[to], copy, (size_t)bytes * sizeof *copy);
    }
}

/* Copies a value carried in place to its final storage, where all micro-batches of a schedule read it. */
static bool begin_carried(Interp *in, Iterations *t, int i)
{
    const Value *from = arg(t->op, i), *to = t->op->results.at[i];
    const int64_t bytes = local_bytes(in->m, &from->type);
    t->carried[i] = address_of(in, from);
    if (from->type.in_flight) {
        t->first[i] = NEW(&in->arena, Flight);
        *t->first[i] = *flight_to(in->memory, t->carried[i]);
    }
    if (!is_carried_in_place(t->op, t->callee, i) && !is_scheduled(t->op))
        return true;
    t->carried[i] = address_of(in, to);
    if (!is_inside(in, from, address_of(in, from), bytes) || !is_inside(in, to, t->carried[i], bytes))
        return false;
    const RankSet running = in->running;
    if (from->type.on.at && !is_split_loop(t->op)) /* the place may be that of another sum on other ranks */
        in->running = from->type.on;
    copy_bytes(in, address_of(in, from), t->carried[i], bytes);
    in->running = running;
    return true;
}

bool forget_frame(Interp *in, const Op *call, const Func *callee)
{
    return !call->args.count || forget_region(in, arg(call, 0), in->now.base + call->attrs.frame, callee->frame);
}

bool begin_iterations(Interp *in, const Op *op, const Func *callee, Iterations *t)
{
    bool good = true;
    *t = (Iterations){ .op = op, .callee = callee, .outer = in->now, .iterations = 1 };
    t->carried = NEW_ARRAY(&in->arena, int64_t, op->args.count + 1);
    t->first = NEW_ARRAY(&in->arena, Flight *, op->args.count + 1);
    const Values *const lists[] = { &op->args, &op->results, &callee->params, &callee->results };
    for (int k = 0; k < 4; k++)
        for (int i = 0; good && i < lists[k]->count; i++)
            good = has_place(in, lists[k]->at[i]);
    for (int i = 0; good && i < op->attrs.carried; i++)
        good = begin_carried(in, t, i);
    return good && forget_frame(in, op, callee);
}

/* The address of one iteration's slice of a value of the caller. */
static int64_t slice_address(const Interp *in, const Op *op, const Value *value, int64_t at)
{
    int dim = op->attrs.dims.count ? find_dim(&value->type, op->attrs.dims.dim[0].name) : -1;
    int64_t stride = dim < 0 ? 0 : value->storage->stride[dim];
    return address_of(in, value) + at * stride * dtype_bytes(value->type.dtype);
}

/* A value not carried in place alternates between a buffer after the callee's frame and the storage of the loop's
 * result, so that the last iteration writes to the latter.  The micro-batches of a schedule all write to the buffer. */
void begin_iteration(Interp *in, Iterations *t, int64_t at)
{
    const Op *op = t->op;
    const int nargs = op->args.count, nresults = op->results.count;
    const int64_t iteration = op->attrs.reverse ? t->iterations - 1 - at : at;
    int64_t *pointer = NEW_ARRAY(&in->arena, int64_t, nargs + nresults + 1);
    int64_t frame = in->now.base + op->attrs.frame, buffer = frame + aligned_bytes(t->callee->frame);
    for (int i = 0; i < nargs; i++)
        pointer[i] = i < op->attrs.carried  ? t->carried[i]
                     : is_prefetched(op, i) ? slice_address(in, op, arg(op, i), at + (op->attrs.reverse ? -1 : 1))
                                            : slice_address(in, op, arg(op, i), at);
    for (int i = 0; i < nresults; i++) {
        const Value *value = op->results.at[i];
        bool swaps = i < op->attrs.carried && !is_carried_in_place(t->op, t->callee, i);
        pointer[nargs + i] = i >= op->attrs.carried ? slice_address(in, op, value, at)
                             : swaps && (is_scheduled(op) || is_written_behind(op, i, iteration, t->iterations))
                                 ? buffer
                                 : address_of(in, value);
        if (swaps)
            buffer += aligned_bytes(local_bytes(in->m, &value->type));
    }
    for (int i = 0; i < op->attrs.carried && !is_scheduled(op); i++)
        t->carried[i] = pointer[nargs + i];
    in->now = (Activation){ frame, pointer };
}

/* A carried value comes from the rank before: where the callee reads it, in the buffer that it does not write. */
bool receive_operand(Interp *in, Iterations *t, int i, const Sharded *value)
{
    const Op *op = t->op;
    int64_t buffer = in->now.base + op->attrs.frame + aligned_bytes(t->callee->frame);
    if (t->first[i]) { /* this rank has started its own */
        take_off(in, t->first[i]->op, &t->first[i]->operand);
        t->carried[i] = address_of(in, arg(op, i));
        return true;
    }
    t->carried[i] = address_of(in, op->results.at[i]);
    if (!is_carried_in_place(op, t->callee, i) && is_written_behind(op, i, -1, t->iterations)) {
        for (int j = 0; j < i; j++)
            buffer +=
                is_carried_in_place(op, t->callee, j) ? 0 : aligned_bytes(local_bytes(in->m, &op->results.at[j]->type));
        t->carried[i] = buffer;
    }
    return write_value(in, t->callee->params.at[i], t->carried[i], value);
}

void end_iteration(Interp *in, Iterations *t) { in->now = t->outer; }

bool pass_message(Interp *in, const MessageEnd *from, const MessageEnd *to, const Shard *shard)
{
    in->memory->when++;
    return read_shard(in, from->value, from->address, shard, from->rank) &&
           write_shard(in, to->value, to->address, shard, to->rank);
}

/* --- Whole programs ---------------------------------------------------------------------------------- */

/* State of the step while another program runs: zeros, except for the weights that both read, and without what a step
 * leaves to the next one, as FINISH runs before. */
static bool guard_state(Interp *in, bool begins)
{
    const Func *step = in->memory->guarded;
    bool good = true;
    for (int i = 0; step && good && i < step->params.count; i++) {
        const Value *state = step->params.at[i];
        if (!port_is_state(state->port.kind) || state->port.kind == PORT_LEFT || param_with(in->func, state->port))
            continue;
        Sharded held = new_sharded(in, &state->type);
        good = held.shard && (begins ? write_value : read_value)(in, state, state->storage->at, &held);
    }
    return good;
}

bool begin_memory(Interp *in, const Func *program, const Sharded params[])
{
    Memory *memory = in->memory = NEW(&in->arena, Memory);
    const Func *step = func_with_role(in->m, STEP);
    *memory = (Memory){ .bytes = bytes_of_tiers(in->m), .when = 1, .guarded = program == step ? NULL : step };
    memory->bytes = memory->bytes ? memory->bytes : program->frame;
    memory->rank = NEW_ARRAY(&in->arena, Cell *, in->ranks);
    for (int rank = 0; rank < in->ranks; rank++)
        memory->rank[rank] = NEW_ARRAY(&in->arena, Cell, memory->bytes + WIDEST + 1);
    bool good = guard_state(in, true);
    for (int i = 0; good && i < program->params.count; i++)
        good = has_place(in, program->params.at[i]) &&
               write_value(in, program->params.at[i], address_of(in, program->params.at[i]), &params[i]);
    for (int i = 0; good && i < program->params.count; i++) /* two parameters may not overlap */
        good = read_value(in, program->params.at[i], address_of(in, program->params.at[i]), &params[i]);
    return good;
}

/* New state must be in the storage of the old one. */
static bool state_stays(Interp *in, const Func *step)
{
    const StepState state = state_of(step);
    for (int i = 0; i < state.count; i++) {
        const Value *new = state.after[i], *old = state.before[i];
        if (address_of(in, new) != address_of(in, old))
            return cannot_run(in, "the new %%%s is at byte %lld, the old one at %lld", old->name,
                              (long long)address_of(in, new), (long long)address_of(in, old));
    }
    return true;
}

bool end_memory(Interp *in, const Func *program, const Sharded params[], const Sharded results[])
{
    bool good = !returns_state(program) || state_stays(in, program);
    for (int i = 0; good && i < program->results.count; i++)
        good = read_value(in, program->results.at[i], address_of(in, program->results.at[i]), &results[i]);
    for (int i = 0; good && !returns_state(program) && i < program->params.count; i++) /* weights are read only */
        if (program->params.at[i]->port.kind == PORT_PARAM)
            good = read_value(in, program->params.at[i], address_of(in, program->params.at[i]), &params[i]);
    return good && guard_state(in, false);
}
