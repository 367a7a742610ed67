/* cc.c -- runs the C compiler on trainer.c, without a shell, and finds the runtime. */
#include "cc.h"

#include "cuda_home.h"
#include "unfinished.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- The runtime --------------------------------------------------------------------------- */

const char *folder_of_mpc(Run *run)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return ".";
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    return arena_text(&run->arena, "%s", path);
}

static bool is_runtime(Run *run, Runtime *runtime)
{
    const int folder = (int)(strrchr(runtime->library, '/') - runtime->library);
    runtime->mpi = arena_text(&run->arena, "%.*s/mpi.flags", folder, runtime->library);
    return access(runtime->library, R_OK) == 0 &&
           access(arena_text(&run->arena, "%s/rt.h", runtime->headers), R_OK) == 0;
}

bool find_runtime(Run *run, Runtime *runtime)
{
    const char *chosen = getenv("MPC_RUNTIME"), *folder = folder_of_mpc(run);
    const char *archive = is_cuda(run->options) ? "libmpcrt_cuda.a" : "libmpcrt.a";
    const char *why =
        is_cuda(run->options) ? " (mpc was built where there is no CUDA, or with another CUDA_HOME?)" : "";
    if (chosen && *chosen) {
        runtime->library = arena_text(&run->arena, "%s/%s", chosen, archive);
        runtime->headers = arena_text(&run->arena, "%s/include", chosen);
        return is_runtime(run, runtime) ||
               run_failed(run, "MPC_RUNTIME=%s: there is no %s and include/rt.h in it%s", chosen, archive, why);
    }
    const char *const places[][2] = { { "", "../runtime" }, { "../lib/mpc/", "../lib/mpc/include" } };
    for (int i = 0; i < 2; i++) {
        runtime->library = arena_text(&run->arena, "%s/%s%s", folder, places[i][0], archive);
        runtime->headers = arena_text(&run->arena, "%s/%s", folder, places[i][1]);
        if (is_runtime(run, runtime))
            return true;
    }
    return run_failed(run,
                      "cannot find the runtime: no %s beside %s/mpc, nor in ../lib/mpc; build it with 'make', or "
                      "set MPC_RUNTIME to the folder that holds it%s",
                      archive, folder, why);
}

/* --- The command --------------------------------------------------------------------------- */

/* A trainer's arithmetic: sums are reordered only where the source permits it (omp simd). */
static const char *const flags[] = { "-std=gnu17", "-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math" };
static const char *const libraries[] = { "-ldnnl", "-lcjson", "-lm", NULL };
static const char *const cuda_libraries[] = { "-lcjson", "-lpthread", "-ldl", "-lrt", "-lm", NULL };

typedef struct {
    Arena *arena;
    const char **at;
    int count, room;
} Words;

static void add_word(Words *words, const char *word)
{
    if (words->count + 1 >= words->room) { /* NULL after the last */
        const char **grown = NEW_ARRAY(words->arena, const char *, words->room = 2 * words->room + 64);
        if (words->count)
            memcpy(grown, words->at, (size_t)words->count * sizeof *grown);
        words->at = grown;
    }
    words->at[words->count++] = word;
}

/* The next word, split as by a shell: quotes and backslashes keep spaces.  NULL at the end; `open` is set if a quote is
 * not closed. */
static const char *quoted_word(Arena *arena, const char **line, bool *open)
{
    *line += strspn(*line, " \t\n");
    if (!**line)
        return NULL;
    char *word = arena_text(arena, "%s", *line), *to = word, quote = '\0';
    for (; **line && (quote || !strchr(" \t\n", **line)); ++*line) {
        char c = **line;
        if (quote ? c == quote : c == '\'' || c == '"')
            quote = quote ? '\0' : c;
        else if (c == '\\' && quote != '\'' && (*line)[1])
            *to++ = *++*line;
        else
            *to++ = c;
    }
    *to = '\0';
    *open |= quote != '\0';
    return word;
}

static bool add_words(Run *run, Words *words, const char *what, const char *text)
{
    const char *line = text, *word;
    bool open = false;
    while ((word = quoted_word(words->arena, &line, &open)))
        add_word(words, word);
    return !open || run_failed(run, "%s: a quote is not closed: %s", what, text);
}

static bool add_mpi(Run *run, Words *words, const Runtime *runtime)
{
    const char *why;
    const Source *flags = read_text(run, runtime->mpi, &why);
    if (!flags || flags->text[strspn(flags->text, " \n")] == '\0')
        return run_failed(run,
                          "the runtime %s was built without MPI: give --comm=tcp, whose ranks need none, or build mpc "
                          "where there is an MPI (make MPI=yes MPICC=...)",
                          runtime->library);
    return add_words(run, words, runtime->mpi, flags->text);
}

/* Of CUDA only the run-time library is linked, as an archive: a trainer also starts on a machine without CUDA. */
static bool add_libraries(Run *run, Words *words, const Runtime *runtime, const char *comm)
{
    bool cuda = is_cuda(run->options);
    if (cuda) {
        const char *path = find_in_cuda(run, "libcudart_static.a");
        if (!path)
            return run_failed(run,
                              "cannot find CUDA (libcudart_static.a): set CUDA_HOME to its folder, put its nvcc on "
                              "PATH, or give --no-cc to write trainer.c and kernels.cu alone");
        add_word(words, path);
    }
    for (const char *const *library = cuda ? cuda_libraries : libraries; *library; library++)
        add_word(words, *library);
    if (comm && !strcmp(comm, "mpi"))
        return add_mpi(run, words, runtime);
    if (comm) /* for the handshake of ranks over TCP; a trainer of one rank starts without it */
        add_word(words, "-lcrypto");
    return true;
}

/* The compiler's name and words, and its flags. */
static bool add_compiler(Run *run, Words *words, const Runtime *runtime)
{
    const Options *o = run->options;
    const char *named = getenv("CC");
    const char *const what = o->cc ? "--cc" : "CC";
    if (!add_words(run, words, what, o->cc ? o->cc : named && *named ? named : "cc"))
        return false;
    if (!words->count)
        return run_failed(run, "%s: no C compiler is named", what);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        add_word(words, flags[i]);
    if (*march_of(o))
        add_word(words, arena_text(&run->arena, "-march=%s", march_of(o)));
    if (!add_words(run, words, "--cflags", o->cflags ? o->cflags : ""))
        return false;
    add_word(words, arena_text(&run->arena, "-I%s", runtime->headers));
    if (is_cuda(o))
        add_word(words, arena_text(&run->arena, "-I%s", o->output)); /* the folder of the embedded kernels.cu */
    return true;
}

const char **unit_command(Run *run, const Runtime *runtime, const char *unit, const char *object)
{
    Words words = { .arena = &run->arena };
    if (!add_compiler(run, &words, runtime))
        return NULL;
    const char *const last[] = { "-c", "-o", object, unit };
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        add_word(&words, last[i]);
    return words.at;
}

const char **program_command(Run *run, const Runtime *runtime, const char *program, const char *comm, int count,
                             const char *const files[])
{
    Words words = { .arena = &run->arena };
    if (!add_compiler(run, &words, runtime))
        return NULL;
    add_word(&words, "-o");
    add_word(&words, program);
    for (int i = 0; i < count; i++)
        add_word(&words, files[i]);
    add_word(&words, runtime->library);
    return add_libraries(run, &words, runtime, comm) ? words.at : NULL;
}

char *command_text(Run *run, const char *const argv[])
{
    char *text = "";
    for (int i = 0; argv[i]; i++)
        text = arena_text(&run->arena, "%s%s%s", text, i ? " " : "", shell_word(&run->arena, argv[i]));
    return text;
}

/* Its status goes to *pid of a process; false after an error. */
static bool start(Run *run, const char *const argv[], pid_t *pid)
{
    const int reason = start_writer(argv, pid);
    return reason == 0 ||
           run_failed(run, "cannot run the C compiler '%s': %s; give --cc CC", argv[0], strerror(reason));
}

static bool wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    forget_writer(pid);
    return status == 0;
}

bool run_commands(Run *run, int count, const char **const commands[])
{
    const long most = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t *pid = NEW_ARRAY(&run->arena, pid_t, count);
    int started = 0, ended = 0;
    bool good = true;
    while (ended < started || (good && started < count))
        if (good && started < count && started - ended < (most > 0 ? most : 1))
            good = start(run, commands[started], &pid[started]) && ++started;
        else
            good = wait_for(pid[ended++]) && good;
    return good;
}
