/* tcp_launch.c -- which rank this is, of how many, and where rank 0 waits.
 *
 * Options win over the environment.  Of launchers the innermost counts: torchrun, mpirun and mpiexec, whose numbers may
 * not contradict each other, before srun, which often starts one of them.  Rank 0's address is --master, or MASTER_ADDR
 * and MASTER_PORT, or what can be worked out:
 *
 *   srun      the first host of the step, and a port made from the job's number
 *   mpirun    on one machine: any free port, which rank 0 writes into mpirun's own folder
 *   torchrun  MASTER_PORT, unless torchrun itself listens there: then one made from it and the run's name */
#include "tcp.h"

#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536, MOST_PORT = 65535 };

typedef struct {
    const char *name, *rank, *ranks, *local_rank, *local_ranks; /* of variables; NULL: it has none */
    const char *job[2];
} Launcher;

static const Launcher launchers[] = {
    { "torchrun",
      "RANK",
      "WORLD_SIZE",
      "LOCAL_RANK",
      "LOCAL_WORLD_SIZE",
      { "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT" } },
    { "mpirun",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE",
      { "PMIX_NAMESPACE" } },
    { "mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", { NULL } },
    { "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, { "SLURM_JOB_ID", "SLURM_STEP_ID" } },
};

enum { MPIRUN = 1, SRUN = 3, NLAUNCHERS = sizeof launchers / sizeof *launchers };

/* --- Words and numbers ----------------------------------------------------------------------------- */

uint64_t rt_launch_hash(uint64_t seed, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = seed ? seed : 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}

/* A variable that is empty counts as not set. */
static const char *variable(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text && *text ? text : NULL;
}

static int number_of(const char *source, const char *text, int lowest, int highest)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number < lowest || number > highest)
        rt_fail("%s is '%s', but must be a whole number from %d to %d", source, text, lowest, highest);
    return (int)number;
}

static int number_of_variable(const char *name, int lowest, int highest)
{
    return number_of(name, variable(name), lowest, highest);
}

/* --- Ranks ----------------------------------------------------------------------------------------- */

/* Whose numbers count, or -1. */
static int find_launcher(void)
{
    for (int i = 0; i < NLAUNCHERS; i++) {
        const char *rank = variable(launchers[i].rank), *ranks = variable(launchers[i].ranks);
        if (rank && ranks)
            return i;
        if (rank || ranks)
            rt_fail("%s is set, but %s is not: %s sets both, so set it too, or give --rank and --ranks",
                    rank ? launchers[i].rank : launchers[i].ranks, rank ? launchers[i].ranks : launchers[i].rank,
                    launchers[i].name);
    }
    return -1;
}

static void check_agree(const char *name, const char *other)
{
    if (variable(other) && strcmp(variable(name), variable(other)))
        rt_fail(
            "%s is %s, but %s is %s: two launchers contradict each other; unset the variables of one, or give --rank "
            "and --ranks",
            name, variable(name), other, variable(other));
}

static uint64_t job_of(const Launcher *from)
{
    uint64_t job = rt_launch_hash(0, from->name, strlen(from->name));
    bool is_known = false;
    for (int i = 0; i < 2; i++) {
        const char *text = variable(from->job[i]);
        if (text)
            job = rt_launch_hash(job, text, strlen(text) + 1);
        is_known = is_known || text;
    }
    return is_known ? job : 0;
}

static void read_launcher(RtLaunch *launch, int which)
{
    const Launcher *from = &launchers[which];
    for (int i = which + 1; i < SRUN; i++) {
        check_agree(from->rank, launchers[i].rank);
        check_agree(from->ranks, launchers[i].ranks);
    }
    launch->rank = number_of_variable(from->rank, 0, MOST_RANKS - 1);
    launch->ranks = number_of_variable(from->ranks, 1, MOST_RANKS);
    if (variable(from->local_rank) && variable(from->local_ranks)) {
        launch->local_rank = number_of_variable(from->local_rank, 0, MOST_RANKS - 1);
        launch->local_ranks = number_of_variable(from->local_ranks, 1, MOST_RANKS);
        if (launch->local_rank >= launch->local_ranks)
            rt_fail("%s is %d, but %s is %d: ranks of a machine count from 0", from->local_rank, launch->local_rank,
                    from->local_ranks, launch->local_ranks);
    }
    launch->job = job_of(from);
}

static int find_rank(RtLaunch *launch, const char *rank, const char *ranks)
{
    int launcher = rank && ranks ? -1 : find_launcher();
    if (launcher >= 0)
        read_launcher(launch, launcher);
    if (launcher < 0 && (rank || ranks) && !(rank && ranks))
        rt_fail("--%s is given, but --%s is not, and no launcher says it: give both", rank ? "rank" : "ranks",
                rank ? "ranks" : "rank");
    if (rank || ranks) {
        launch->local_rank = launch->local_ranks = -1;
        launch->job = 0;
    }
    launch->rank = rank ? number_of("--rank", rank, 0, MOST_RANKS - 1) : launch->rank;
    launch->ranks = ranks ? number_of("--ranks", ranks, 1, MOST_RANKS) : launch->ranks;
    if (launch->rank >= launch->ranks)
        rt_fail("this is rank %d of %d (%s), but ranks count from 0: the last one is %d", launch->rank, launch->ranks,
                rank || ranks ? "--rank, --ranks" : launchers[launcher].name, launch->ranks - 1);
    return rank || ranks ? -1 : launcher;
}

int rt_launch_rank(int argc, char **argv)
{
    const char *rank = rt_options_text(argc, argv, "rank");
    for (int i = 0; i < NLAUNCHERS && !rank; i++)
        rank = variable(launchers[i].rank);
    return rank ? atoi(rank) : 0;
}

/* --- Where rank 0 is ------------------------------------------------------------------------------- */

/* HOST:PORT, [ADDRESS]:PORT */
static void read_master(RtLaunch *launch, const char *text)
{
    const char *colon = strrchr(text, ':'), *end = colon;
    if (!colon || colon == text)
        rt_fail("--master is '%s', but must be HOST:PORT, such as 10.0.0.7:29500", text);
    launch->port = number_of("the port of --master", colon + 1, 1, MOST_PORT);
    if (*text == '[' && end[-1] == ']') {
        text++;
        end--;
    }
    launch->host = rt_text("%.*s", (int)(end - text), text);
}

/* Below the ports that the kernel hands out by itself. */
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
    const char *number = list + head + 1, *rest = strchr(number, ']');
    size_t tail = rest ? strcspn(rest + 1, "[,") : 0;
    return rt_text("%.*s%.*s%.*s", (int)head, list, (int)strcspn(number, "-,]"), number, (int)tail,
                   rest ? rest + 1 : "");
}

static void ask_srun(RtLaunch *launch)
{
    const char *hosts = variable("SLURM_STEP_NODELIST"), *address = variable("SLURM_LAUNCH_NODE_IPADDR");
    launch->host = hosts ? first_host(hosts) : address;
    launch->port = launch->job ? port_made_from(launch->job) : 0;
}

static void ask_mpirun(RtLaunch *launch)
{
    const char *folder = variable("PMIX_SERVER_TMPDIR");
    if (!folder || launch->local_ranks != launch->ranks)
        return;
    launch->host = "127.0.0.1";
    launch->file = rt_text("%s/mpc.port", folder);
}

static void read_port(RtLaunch *launch, const char *port)
{
    const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
    launch->port = number_of("MASTER_PORT", port, 1, MOST_PORT);
    if (store && !strcmp(store, "True"))
        launch->port = port_made_from(rt_launch_hash(launch->job, port, strlen(port)));
}

static void find_master(RtLaunch *launch, int launcher)
{
    const char *host = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
    if (launcher == SRUN)
        ask_srun(launch);
    if (launcher == MPIRUN && !host && !port)
        ask_mpirun(launch);
    if (host)
        launch->host = host;
    if (port)
        read_port(launch, port);
    if (host && !launch->port)
        rt_fail("MASTER_ADDR is set, but MASTER_PORT is not: set it to any free port of that machine");
    if (!launch->host || (!launch->port && !launch->file))
        rt_fail(
            "rank %d of %d does not know where rank 0 is%s: give --master HOST:PORT to all, any free port of rank 0's "
            "machine, or set MASTER_ADDR and MASTER_PORT",
            launch->rank, launch->ranks,
            launcher == MPIRUN ? ", since mpirun tells no address where ranks are on several machines" : "");
}

/* A text that is no time is refused when the ranks have met. */
static double timeout_of(const char *text)
{
    enum { OTHERWISE = 60 };
    double seconds = strtod(text, NULL);
    return seconds > 0 && seconds <= 1e9 ? seconds : OTHERWISE;
}

RtLaunch rt_launch_read(int argc, char **argv)
{
    RtLaunch launch = { .ranks = 1, .local_rank = -1, .local_ranks = -1 };
    const char *master = rt_options_text(argc, argv, "master");
    int launcher = find_rank(&launch, rt_options_text(argc, argv, "rank"), rt_options_text(argc, argv, "ranks"));
    launch.secret = variable("MPC_SECRET");
    launch.timeout = timeout_of(rt_options_text(argc, argv, "timeout"));
    if (master)
        read_master(&launch, master);
    else if (launch.ranks > 1)
        find_master(&launch, launcher);
    return launch;
}
