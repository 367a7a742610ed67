/* comm.c -- the mesh: coordinates of ranks, parts of split dims, groups of ranks along axes.
 *
 * Ranks are numbered with the last axis fastest.  The group of a collective is the ranks that differ only on its axes,
 * in the order of these axes, the first slowest: member k holds the k-th block of a dim that is split over them. */
#include "comm.h"

#include "agree.h"
#include "visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

struct RtMesh {
    RtGroup world;
    RtGroup *group; /* distinct lists of axes, in the order of the collectives that use them */
    int ngroups;
};

/* --- Coordinates ------------------------------------------------------------------------------ */

/* The coordinate of any rank on an axis. */
static int coordinate_of(const RtProgram *program, int rank, int axis)
{
    for (int i = program->naxes - 1; i > axis; i--)
        rank /= program->axes[i].size;
    return rank % program->axes[axis].size;
}

int rt_coordinate(const Rt *rt, int axis) { return coordinate_of(rt->program, rt->rank, axis); }

/* The index of a block along several axes: the first slowest. */
static int block_of(const RtProgram *program, int rank, const int axis[], int count, int *blocks)
{
    int block = 0;
    *blocks = 1;
    for (int i = 0; i < count; i++) {
        int size = program->axes[axis[i]].size;
        block = block * size + coordinate_of(program, rank, axis[i]);
        *blocks *= size;
    }
    return block;
}

int64_t rt_part_size(const Rt *rt, RtSplit split, int64_t padded)
{
    int blocks;
    block_of(rt->program, rt->rank, split.axis, split.count, &blocks);
    int64_t most = 0;
    for (int i = 0; i < blocks && split.parts; i++)
        most = split.parts[i] > most ? split.parts[i] : most;
    return split.parts ? most : padded / blocks;
}

RtPart rt_part(const Rt *rt, RtSplit split, int64_t padded)
{
    int blocks, block = block_of(rt->program, rt->rank, split.axis, split.count, &blocks);
    int64_t length = padded / blocks;
    block = (block + split.turn) % blocks;
    if (split.parts) {
        int64_t first = 0;
        for (int i = split.reversed ? block + 1 : 0; i < (split.reversed ? blocks : block); i++)
            first += split.parts[i];
        return (RtPart){ .first = first, .jump_from = split.parts[block], .jump = padded };
    }
    if (!split.zigzag && !split.dealt)
        return (RtPart){ .first = block * length, .jump_from = length };
    if (split.dealt) {
        const int64_t block_length = length / split.dealt;
        return (RtPart){ .first = block * block_length,
                         .jump_from = block_length,
                         .period = block_length,
                         .skip = (blocks - 1) * block_length };
    }
    int64_t n = rt->program->axes[split.axis[0]].size, r = (rt_coordinate(rt, split.axis[0]) + split.turn) % n;
    int64_t chunk = padded / (split.zigzag * n), begin = length * (block % (blocks / n));
    RtPart part = { .first = r * chunk + begin, .jump_from = chunk, .jump = 2 * (n - 1 - r) * chunk, .begin = begin };
    if (split.zigzag > 2)
        part.period = 2 * chunk, part.skip = 2 * (n - 1) * chunk;
    return part;
}

char *rt_comm_place(const Rt *rt, int rank)
{
    const RtProgram *program = rt->program;
    char *text = rt_text("rank %d", rank);
    for (int i = 0; i < program->naxes; i++)
        rt_append(&text, "%s%s %d", i ? ", " : " (", program->axes[i].name, coordinate_of(program, rank, i));
    rt_append(&text, program->naxes ? ")" : "");
    return text;
}

/* --- Groups ----------------------------------------------------------------------------------- */

static bool same_axes(const RtGroup *group, const RtCollective *collective)
{
    return group->naxes == collective->naxes && group->members == collective->stages &&
           !memcmp(group->axis, collective->axis, (size_t)group->naxes * sizeof *group->axis);
}

/* Leaves only those members in a group along one axis whose coordinate is in the set; false if this rank is not. */
static bool leave_members(RtGroup *group, uint64_t members)
{
    int own = -1, count = 0;
    for (int i = 0; i < group->count; i++) {
        if (!(members >> i & 1))
            continue;
        own = i == group->own ? count : own;
        group->rank[count++] = group->rank[i];
    }
    group->count = count;
    group->own = own;
    return own >= 0;
}

/* The group of a collective with this rank: all ranks call it.  Without a channel if the rank is not in it. */
static RtGroup form_group(Rt *rt, const RtCollective *collective)
{
    const RtProgram *program = rt->program;
    const int *axis = collective->axis, naxes = collective->naxes;
    RtGroup group = { .naxes = naxes, .members = collective->stages };
    group.own = block_of(program, rt->rank, axis, naxes, &group.count);
    group.rank = rt_allocate(group.count, sizeof *group.rank);
    memcpy(group.axis, axis, (size_t)naxes * sizeof *axis);
    int others[RT_MAX_AXES], nothers = 0, blocks;
    for (int i = 0; i < program->naxes; i++) {
        bool is_of_group = false;
        for (int k = 0; k < naxes; k++)
            is_of_group |= axis[k] == i;
        if (!is_of_group)
            others[nothers++] = i;
    }
    int colour = block_of(program, rt->rank, others, nothers, &blocks);
    for (int rank = 0; rank < rt->ranks; rank++)
        if (block_of(program, rank, others, nothers, &blocks) == colour)
            group.rank[block_of(program, rank, axis, naxes, &blocks)] = rank;
    if (!group.members || leave_members(&group, group.members))
        group.channel = program->comm->group(group.rank, group.count, group.own);
    return group;
}

static RtGroup *find_group(const struct RtMesh *mesh, const RtCollective *collective)
{
    for (int i = 0; i < mesh->ngroups; i++)
        if (same_axes(&mesh->group[i], collective))
            return &mesh->group[i];
    return NULL;
}

static RtGroup form_world(Rt *rt)
{
    RtGroup world = { .count = rt->ranks, .own = rt->rank };
    world.rank = rt_allocate(world.count, sizeof *world.rank);
    for (int i = 0; i < world.count; i++)
        world.rank[i] = i;
    world.channel = rt->program->comm->group(world.rank, world.count, world.own);
    return world;
}

const RtGroup *rt_comm_group(const Rt *rt, const RtCollective *collective) { return find_group(rt->mesh, collective); }

/* --- Start and end ---------------------------------------------------------------------------- */

static char *mesh_text(const RtProgram *program)
{
    char *text = rt_text("%s", "");
    for (int i = 0; i < program->naxes; i++)
        rt_append(&text, "%s%s=%d", i ? "," : "", program->axes[i].name, program->axes[i].size);
    return text;
}

/* The variable in which a launcher tells its number of processes, if that is more than one; NULL: none does. */
static const char *find_launched(void)
{
    static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS" };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *size = getenv(sizes[i]);
        if (size && atoi(size) > 1)
            return sizes[i];
    }
    return NULL;
}

/* --rank or --master, which number the ranks over TCP, or NULL. */
static const char *find_place(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--rank", 6) || !strncmp(argv[i], "--master", 8))
            return argv[i];
    return NULL;
}

static const char *why_alone(const Rt *rt, int argc, char **argv)
{
    const char *launched = find_launched(), *place = rt->program->comm->takes_place ? NULL : find_place(argc, argv);
    if (place)
        return rt_text("runs (%.*s is for trainers compiled with --comm=tcp)", (int)strcspn(place, "="), place);
    return launched ? rt_text("runs (%s is %s, so a launcher of another MPI started it?)", launched, getenv(launched))
                    : "runs (was it started without a launcher?)";
}

static void check_ranks(const Rt *rt, int argc, char **argv)
{
    const char *launcher = rt->program->comm->takes_place ? "torchrun --no_python --nproc_per_node=" : "mpirun -n ";
    const char *command = argv[0];
    int wanted = 1;
    for (int i = 0; i < rt->program->naxes; i++)
        wanted *= rt->program->axes[i].size;
    if (rt->ranks != wanted)
        rt_fail("%s was compiled for %d ranks (%s), but %d %s: start it with '%s%d %s ...', or compile it for another "
                "mesh",
                command, wanted, mesh_text(rt->program), rt->ranks, rt->ranks == 1 ? why_alone(rt, argc, argv) : "run",
                launcher, wanted, command);
}

/* Rejects a launcher that starts several processes of a one-rank program: each would train the same. */
static void check_alone(const char *command)
{
    const char *size = find_launched();
    if (size)
        rt_fail("%s was compiled for one rank, but %d were started (%s): start one, or compile it for a mesh (mpc "
                "compile --mesh ...); for independent runs unset %s",
                command, atoi(getenv(size)), size, size);
}

/* Of stacks of which stages have different numbers of copies: this rank's. */
static void count_own_copies(const Rt *rt)
{
    const RtProgram *program = rt->program;
    for (const RtCollective *c = program->collectives; c < program->collectives + program->ncollectives; c++)
        for (RtPiece *piece = c->piece; piece < c->piece + c->npieces; piece++)
            if (piece->copies)
                piece->outer *= piece->copies[rt_coordinate(rt, piece->along)];
}

static void free_groups(struct RtMesh *mesh)
{
    for (int i = 0; i < mesh->ngroups; i++)
        free(mesh->group[i].rank);
    free(mesh->group);
    mesh->group = NULL;
    mesh->ngroups = 0;
}

void rt_comm_form_groups(Rt *rt)
{
    const RtProgram *program = rt->program;
    if (!rt->mesh)
        return;
    free_groups(rt->mesh);
    rt->mesh->group = rt_allocate(program->ncollectives, sizeof *rt->mesh->group);
    for (const RtCollective *c = program->collectives; c < program->collectives + program->ncollectives; c++)
        if (!find_group(rt->mesh, c))
            rt->mesh->group[rt->mesh->ngroups++] = form_group(rt, c);
}

void rt_comm_open(Rt *rt, int *argc, char ***argv)
{
    const RtProgram *program = rt->program;
    const RtComm *comm = program->comm;
    rt->ranks = rt->local_ranks = 1;
    if (!comm) {
        check_alone((*argv)[0]);
        return;
    }
    if (comm->launched_ranks) { /* before open, which would wait for missing ranks */
        rt->ranks = comm->launched_ranks(*argc, *argv);
        rt->rank = comm->launched_as(*argc, *argv);
        check_ranks(rt, *argc, *argv);
        rt_error_ranks(rt);
    }
    RtRank own = comm->open(argc, argv);
    rt->rank = own.rank;
    rt->ranks = own.ranks;
    rt->local_rank = own.local_rank;
    rt->local_ranks = own.local_ranks;
    rt_error_ranks(rt);
    check_ranks(rt, *argc, *argv);
    rt->mesh = rt_allocate(1, sizeof *rt->mesh);
    rt->mesh->world = form_world(rt);
    rt->waiting.timeout = rt_options_timeout(*argc, *argv); /* until the options are read */
    rt_agree_on_program(rt);
    rt_comm_form_groups(rt);
    count_own_copies(rt);
}

void rt_comm_close(Rt *rt)
{
    if (!rt->mesh)
        return;
    rt_comm_barrier(rt);
    free_groups(rt->mesh);
    free(rt->mesh->world.rank);
    free(rt->mesh);
    rt->mesh = NULL;
    rt->program->comm->close();
}

/* --- Between steps ------------------------------------------------------------------------------ */

void rt_comm_gather(Rt *rt, const void *own, int64_t bytes, char *all)
{
    RtMessage *to = rt_allocate(rt->ranks, sizeof *to), *from = rt_allocate(rt->ranks, sizeof *from);
    char *sent = rt_allocate(bytes, 1);
    memcpy(sent, own, (size_t)bytes);
    memcpy(all + rt->rank * bytes, own, (size_t)bytes);
    for (int q = 0; q < rt->ranks; q++) {
        to[q] = (RtMessage){ sent, bytes };
        from[q] = (RtMessage){ all + q * bytes, bytes };
    }
    if (rt->mesh)
        rt_exchange_messages(rt, &rt->mesh->world, NULL, to, from);
    free(sent);
    free(from);
    free(to);
}

void rt_comm_barrier(Rt *rt) { rt_comm_max(rt, 0); }

double rt_comm_max(Rt *rt, double value)
{
    double *all = rt_allocate(rt->ranks, sizeof *all), most = value;
    rt_comm_gather(rt, &value, sizeof value, (char *)all);
    for (int q = 0; q < rt->ranks; q++)
        most = all[q] > most ? all[q] : most;
    free(all);
    return most;
}

double rt_comm_sum(Rt *rt, double value)
{
    double *all = rt_allocate(rt->ranks, sizeof *all), sum = 0;
    rt_comm_gather(rt, &value, sizeof value, (char *)all);
    for (int q = 0; q < rt->ranks; q++)
        sum += all[q];
    free(all);
    return sum;
}

void rt_comm_add(Rt *rt, uint64_t *numbers, int count)
{
    uint64_t *all = rt_allocate((int64_t)rt->ranks * count, sizeof *all);
    rt_comm_gather(rt, numbers, count * (int64_t)sizeof *numbers, (char *)all);
    memset(numbers, 0, (size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < (int64_t)rt->ranks * count; i++)
        numbers[i % count] += all[i];
    free(all);
}

void rt_comm_clean(char *text, int64_t room)
{
    text[room - 1] = '\0';
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

/* --- --print-mesh ------------------------------------------------------------------------------- */

typedef struct {
    char host[64];
    int local_rank, threads, process;
} Whereabouts;

static void print_row(const Rt *rt, int rank, const Whereabouts *at)
{
    char *host = rt_visible(at->host); /* other machines have sent it */
    printf("%4d  %-20s %5d  %7d  %7d", rank, host ? host : "", at->local_rank, at->process, at->threads);
    free(host);
    for (int i = 0; i < rt->program->naxes; i++)
        printf("  %*d", (int)strlen(rt->program->axes[i].name) > 4 ? (int)strlen(rt->program->axes[i].name) : 4,
               coordinate_of(rt->program, rank, i));
    putchar('\n');
}

void rt_comm_print_mesh(Rt *rt)
{
    Whereabouts own = { .local_rank = rt->local_rank, .threads = rt->threads, .process = (int)getpid() };
    gethostname(own.host, sizeof own.host - 1);
    Whereabouts *all = rt_allocate(rt->ranks, sizeof *all);
    rt_comm_gather(rt, &own, sizeof own, (char *)all);
    if (rt->rank == 0) {
        printf("rank  %-20s local  process  threads", "host");
        for (int i = 0; i < rt->program->naxes; i++)
            printf("  %4s", rt->program->axes[i].name);
        putchar('\n');
        for (int q = 0; q < rt->ranks; q++) {
            rt_comm_clean(all[q].host, sizeof all[q].host);
            print_row(rt, q, &all[q]);
        }
        fflush(stdout);
    }
    free(all);
}
