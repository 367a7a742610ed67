/* nvrtc.c -- replaces libnvrtc.so: compiles kernels to a library for this processor, with g++ and the emulator's
 * headers.  Libraries are kept in the folder MPC_KEPT, by a hash of text and command: however many trainers, caches and
 * ranks ask for the same kernels, they are compiled once. */
#include <nvrtc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct _nvrtcProgram {
    char *source, *log;
    char *code; /* its size, then the library */
    size_t bytes;
};

static char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        abort();
    return text;
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = 0; /* not a real version: code compiled here does not run on a GPU */
    *minor = 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int nheaders,
                               const char *const *headers, const char *const *names)
{
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    return NVRTC_SUCCESS;
}

/* The bytes of the shared memory that a piece of text declares, as an expression. */
static void write_declared(const char *text, const char *end, FILE *out)
{
    static const char word[] = "__shared__ ";
    for (; (text = strstr(text, word)) && text < end;) {
        text += strlen(word);
        const char *sizes = strchr(text, '['), *name = sizes;
        while (name[-1] != ' ')
            name--;
        fprintf(out, " + sizeof(%.*s%.*s)", (int)(name - text), text, (int)strcspn(sizes, ";"), sizes);
    }
}

/* Is the text before the kernel a condition? */
static bool is_conditional(const char *source, const char *kernel, const char *condition)
{
    const size_t length = strlen(condition);
    return kernel >= source + length && memcmp(kernel - length, condition, length) == 0;
}

static int count_of(const char *from, const char *end, const char *word)
{
    int count = 0;
    for (const char *at = from; (at = strstr(at, word)) && at < end; at++)
        count++;
    return count;
}

/* After the text: each kernel as a function of an array of arguments; their number, how many of them, the first, are
 * tensor maps, and the kernel's declared shared memory: that of the text since the last kernel, where the functions are
 * that it calls. */
static void write_source(const char *source, FILE *out)
{
    const char *from = source;
    /* With attention in 16 bits, functions that are put into their callers take longer to compile than they save. */
    if (strstr(source, "rt_attend<"))
        fprintf(out, "#define EMULATOR_CALLS\n");
    fprintf(out, "#include \"wrap.h\"\n#line 1 \"kernels.cu\"\n%s\n", source);
    for (const char *at = source; (at = strstr(at, "extern \"C\" __global__"));) {
        const char *open = strchr(at, ')') + 1; /* after __launch_bounds__ */
        const char *name = open + strspn(open, " \n"), *end = strchr(name, '('), *last = strchr(end, ')');
        const bool is_of_hopper = is_conditional(source, at, "#ifdef RT_HOPPER\n");
        if (is_of_hopper)
            fprintf(out, "#ifdef RT_HOPPER\n");
        fprintf(out, "extern \"C\" void %.*s_emulated(void **arguments) { emulator_call(%.*s, arguments); }\n",
                (int)(end - name), name, (int)(end - name), name);
        fprintf(out, "extern \"C\" const int %.*s_arguments = %d;\n", (int)(end - name), name,
                1 + count_of(end, last, ","));
        fprintf(out, "extern \"C\" const int %.*s_maps = %d;\n", (int)(end - name), name,
                count_of(end, last, "RT_TENSOR_MAP "));
        at = strstr(last, "\n}");
        fprintf(out, "extern \"C\" const long %.*s_declared = 0", (int)(end - name), name);
        write_declared(from, at, out);
        fprintf(out, ";\n%s", is_of_hopper ? "#endif\n" : "");
        from = at;
    }
    fprintf(out, "#include \"sections.h\"\n");
}

static char *read_all(const char *path, size_t *bytes)
{
    FILE *in = fopen(path, "rb");
    char *text = calloc(1, 1);
    *bytes = 0;
    for (size_t some = 1; in && some > 0; *bytes += some) {
        text = realloc(text, *bytes + (1 << 20) + 1);
        some = fread(text + *bytes, 1, 1 << 20, in);
        text[*bytes + some] = '\0';
    }
    if (in)
        fclose(in);
    return text;
}

/* FNV-1a of 128 bits (RFC 9923). */
__extension__ typedef unsigned __int128 Hash;
static Hash hash_of(Hash hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * (((Hash)1 << 88) + 0x13B);
    return hash;
}

/* The command, without the names of its files. */
static char *command_of(int noptions, const char *const *options)
{
    const char *cxx = getenv("KERNEL_CXX");
    char *architecture = text_of("%s", "");
    for (int i = 0; i < noptions; i++)
        if (strcmp(options[i], "--gpu-architecture=sm_90a") == 0)
            architecture = text_of("-D__CUDA_ARCH__=900 -D__CUDA_ARCH_FEAT_SM90_ALL");
        else if (strncmp(options[i], "--gpu-architecture=sm_", 22) == 0)
            architecture = text_of("-D__CUDA_ARCH__=%s0", options[i] + 22);
    return text_of("%s %s -std=gnu++20 -fPIC -shared -w -I" MPC_ROOT "/tests/cuda/emulator -I" MPC_ROOT
                   "/runtime/cuda -I" MPC_ROOT "/runtime",
                   cxx ? cxx : "g++ -Og", architecture);
}

/* Compiles to the file `kept`, which others find whole or not at all; false: for the reasons in the log. */
static bool compile(nvrtcProgram program, const char *text, const char *command, const char *kept)
{
    char folder[] = MPC_KEPT "/XXXXXX";
    if (!mkdtemp(folder))
        return false;
    char *source = text_of("%s/kernels.cpp", folder), *log = text_of("%s/log", folder);
    char *library = text_of("%s/kernels.so", folder);
    FILE *out = fopen(source, "w");
    fputs(text, out);
    fclose(out);
    char *line = text_of("%s %s -o %s -lm > %s 2>&1 || "
                         "{ sed -i 's/^kernels.cu:\\([0-9]*\\):[0-9]*: error/kernels.cu(\\1): error/' %s; false; }",
                         command, source, library, log, log);
    const bool good = system(line) == 0 && rename(library, kept) == 0;
    size_t bytes;
    program->log = read_all(log, &bytes);
    unlink(source), unlink(log), unlink(library), rmdir(folder);
    return good;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int noptions, const char *const *options)
{
    char *text = NULL, *command = command_of(noptions, options);
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    write_source(program->source, out);
    fclose(out);
    const Hash basis = (Hash)0x6C62272E07BB0142 << 64 | 0x62B821756295C58D;
    const Hash hash = hash_of(hash_of(basis, command), text);
    char *kept = text_of(MPC_KEPT "/%016llx%016llx.so", (unsigned long long)(hash >> 64), (unsigned long long)hash);
    program->log = strdup("");
    if (access(kept, R_OK) != 0 && !compile(program, text, command, kept))
        return NVRTC_ERROR_COMPILATION;
    char *code = read_all(kept, &bytes);
    program->code = malloc(bytes + sizeof bytes);
    memcpy(program->code, &bytes, sizeof bytes);
    memcpy(program->code + sizeof bytes, code, bytes);
    program->bytes = bytes + sizeof bytes;
    free(code), free(text), free(command), free(kept);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = strlen(program->log) + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    strcpy(log, program->log);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->bytes;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code)
{
    memcpy(code, program->code, program->bytes);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    free((*program)->source), free((*program)->log), free((*program)->code), free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result) { return "emulated NVRTC: compilation"; }
