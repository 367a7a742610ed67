/* tcp_launch.c -- rank, number of ranks, and the address of rank 0.
 *
 * Options override the environment.  Of nested launchers the innermost is used: torchrun before mpirun and mpiexec, and
 * these before srun.  Rank 0's address is --master, or MASTER_ADDR and MASTER_PORT, or derived:
 *
 *   srun      the first host of the step, and a port derived from the job id
 *   mpirun    on one machine: a Unix socket in mpirun's own folder
 *   torchrun  MASTER_PORT, unless torchrun itself listens there: then one made from it and the run's name */
#include "tcp.h"

#include "options.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536, MOST_PORT = 65535 };

typedef struct {
    const char *name, *rank, *ranks, *local_rank, *local_ranks, *job, *attempt; /* names of variables; NULL: none */
} Launcher;

static const Launcher launchers[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
      "TORCHELASTIC_RESTART_COUNT" },
    { "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", NULL },
    { "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL },
    { "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_JOB_ID", "SLURM_STEP_ID" },
};

static const Launcher *const mpirun = &launchers[1], *const srun = &launchers[3], *const end = &launchers[4];

/* --- Words and numbers ----------------------------------------------------------------------------- */

uint64_t rt_launch_hash(uint64_t seed, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = seed ? seed : 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}

/* An empty variable counts as unset. */
static const char *variable(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text && *text ? text : NULL;
}

static int number_of(const char *source, const char *text, int lowest, int highest)
{
    char *rest;
    long number = strtol(text, &rest, 10);
    if (*text < '0' || *text > '9' || *rest || number < lowest || number > highest)
        rt_fail("%s is '%s', but must be a whole number from %d to %d", source, text, lowest, highest);
    return (int)number;
}

static int number_of_variable(const char *name, int lowest, int highest)
{
    return number_of(name, variable(name), lowest, highest);
}

/* --- Ranks ----------------------------------------------------------------------------------------- */

/* The launcher whose variables are used, or NULL. */
static const Launcher *find_launcher(void)
{
    for (const Launcher *l = launchers; l < end; l++) {
        bool has_rank = variable(l->rank), has_ranks = variable(l->ranks);
        if (has_rank != has_ranks)
            rt_fail("%s is set, but %s is not: %s sets both, so set it too, or give --rank and --ranks",
                    has_rank ? l->rank : l->ranks, has_rank ? l->ranks : l->rank, l->name);
        if (has_rank)
            return l;
    }
    return NULL;
}

static uint64_t job_of(const Launcher *by)
{
    const char *job = variable(by->job), *attempt = variable(by->attempt);
    uint64_t hash = job ? rt_launch_hash(0, job, strlen(job)) : 0;
    return job && attempt ? rt_launch_hash(hash, attempt, strlen(attempt)) : hash;
}

/* Returns the launcher whose variables were used, or NULL. */
static const Launcher *find_rank(RtLaunch *launch, const char *rank, const char *ranks)
{
    RtRank *own = &launch->own;
    const Launcher *by = rank || ranks ? NULL : find_launcher();
    if (!rank != !ranks)
        rt_fail("--%s is given, but --%s is not: give both", rank ? "rank" : "ranks", rank ? "ranks" : "rank");
    if (rank) {
        own->ranks = number_of("--ranks", ranks, 1, MOST_RANKS);
        own->rank = number_of("--rank", rank, 0, own->ranks - 1);
    }
    if (!by)
        return NULL;
    own->ranks = number_of_variable(by->ranks, 1, MOST_RANKS);
    own->rank = number_of_variable(by->rank, 0, own->ranks - 1);
    if (variable(by->local_rank) && variable(by->local_ranks)) {
        own->local_ranks = number_of_variable(by->local_ranks, 1, MOST_RANKS);
        own->local_rank = number_of_variable(by->local_rank, 0, own->local_ranks - 1);
    }
    launch->job = job_of(by);
    return by;
}

int rt_launch_rank(int argc, char **argv)
{
    const char *rank = rt_options_text(argc, argv, "rank");
    for (const Launcher *l = launchers; l < end && !rank; l++)
        rank = variable(l->rank);
    return rank ? atoi(rank) : 0;
}

/* --- The address of rank 0 ------------------------------------------------------------------------- */

/* HOST:PORT, [ADDRESS]:PORT */
static void read_master(RtLaunch *launch, const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        rt_fail("--master is '%s', but must be HOST:PORT, such as 10.0.0.7:29500", text);
    bool has_brackets = *text == '[' && colon[-1] == ']';
    launch->host = rt_text("%.*s", (int)(colon - text) - 2 * has_brackets, text + has_brackets);
    launch->port = number_of("the port of --master", colon + 1, 1, MOST_PORT);
}

/* Below the range of ephemeral ports. */
static int port_made_from(uint64_t number)
{
    enum { FIRST = 20000, COUNT = 12000 };
    return FIRST + (int)(number % COUNT);
}

/* "node[003-007,9],x": "node003"; "a,b": "a". */
static char *first_host(const char *list)
{
    size_t head = strcspn(list, "[,");
    if (list[head] != '[')
        return rt_text("%.*s", (int)head, list);
    const char *number = list + head + 1, *bracket = strchr(number, ']'), *tail = bracket ? bracket + 1 : "";
    return rt_text("%.*s%.*s%.*s", (int)head, list, (int)strcspn(number, "-,]"), number, (int)strcspn(tail, "[,"),
                   tail);
}

static void ask_srun(RtLaunch *launch)
{
    const char *hosts = variable("SLURM_STEP_NODELIST");
    launch->host = hosts ? first_host(hosts) : NULL;
    launch->port = launch->job ? port_made_from(launch->job) : 0;
}

static void ask_mpirun(RtLaunch *launch)
{
    const char *folder = variable("PMIX_SERVER_TMPDIR");
    char *path = folder ? rt_text("%s/mpc.rank0", folder) : NULL;
    if (path && launch->own.local_ranks == launch->own.ranks &&
        strlen(path) < sizeof((RtAddress *)0)->unix_path.sun_path)
        launch->host = path;
}

static void read_port(RtLaunch *launch, const char *port)
{
    const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
    launch->port = number_of("MASTER_PORT", port, 1, MOST_PORT);
    if (store && !strcmp(store, "True"))
        launch->port = port_made_from(rt_launch_hash(launch->job, port, strlen(port)));
}

static void find_master(RtLaunch *launch, const Launcher *by)
{
    const char *host = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
    if (by == srun)
        ask_srun(launch);
    if (by == mpirun && !host && !port)
        ask_mpirun(launch);
    if (host)
        launch->host = host;
    if (port)
        read_port(launch, port);
    if (host && !launch->port)
        rt_fail("MASTER_ADDR is set, but MASTER_PORT is not: set it to any free port of that machine");
    if (!launch->host || (!launch->port && *launch->host != '/'))
        rt_fail("rank %d of %d does not know where rank 0 is%s: give --master HOST:PORT to all, any free port of rank "
                "0's machine, or set MASTER_ADDR and MASTER_PORT",
                launch->own.rank, launch->own.ranks,
                by == mpirun ? ", since mpirun gives no address where ranks are on several machines" : "");
}

RtLaunch rt_launch_read(int argc, char **argv)
{
    const char *secret = variable("MPC_SECRET");
    RtLaunch launch = { .own = { 0, 1, -1, -1 }, .secret = secret ? secret : "" };
    const char *master = rt_options_text(argc, argv, "master");
    const Launcher *by = find_rank(&launch, rt_options_text(argc, argv, "rank"), rt_options_text(argc, argv, "ranks"));
    launch.timeout = rt_options_timeout(argc, argv);
    if (master)
        read_master(&launch, master);
    else if (launch.own.ranks > 1)
        find_master(&launch, by);
    return launch;
}
