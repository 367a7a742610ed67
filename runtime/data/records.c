/* records.c -- records: for each input an array [records, dims...], in a .npy file or as a tensor of a .safetensors
 * file, or several in the files of a folder, one after the other.  If next(T) feeds another input, the array of T has
 * one element more along its last dim. */
#include "data.h"
#include "state.h"
#include "store/map.h"
#include "store/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_own(const RtInput *input) { return !strcmp(input->name, input->of); }

/* The input that INPUT=FILE names; NULL: none. */
static const RtInput *named(const RtFunction *f, const char *given)
{
    const size_t length = strcspn(given, "=");
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs && given[length]; input++)
        if (strlen(input->name) == length && !strncmp(input->name, given, length))
            return input;
    return NULL;
}

const char *rt_records_file(const RtFunction *f, const char *given)
{
    return named(f, given) ? strchr(given, '=') + 1 : NULL;
}

/* --- Files ----------------------------------------------------------------------------------- */

static bool is_safetensors(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".safetensors");
}

static bool take_dtype(RtArray *array, const char *dtype)
{
    static const RtNumberName names[] = {
        { "BOOL", DATA_BOOL, "safetensors, BOOL" }, { "U8", DATA_U8, "safetensors, U8" },
        { "I8", DATA_I8, "safetensors, I8" },       { "U16", DATA_U16, "safetensors, U16" },
        { "I16", DATA_I16, "safetensors, I16" },    { "U32", DATA_U32, "safetensors, U32" },
        { "I32", DATA_I32, "safetensors, I32" },    { "I64", DATA_I64, "safetensors, I64" },
        { "U64", DATA_U64, "safetensors, U64" },    { "F16", DATA_F16, "safetensors, F16" },
        { "BF16", DATA_BF16, "safetensors, BF16" }, { "F32", DATA_F32, "safetensors, F32" },
        { "F64", DATA_F64, "safetensors, F64" },
    };
    return rt_number_take(array, names, sizeof names / sizeof *names, dtype, strlen(dtype));
}

/* Is it a file of named tensors, or a folder of such files? */
static bool has_names(const char *path, const char *option)
{
    RtSource source = rt_source_of(path, option);
    const bool has = is_safetensors(source.file[0]);
    rt_source_free(&source);
    return has;
}

/* The tensor `name` of the file; its numbers are at the same place of the mapped file. */
static void take_tensor(RtArray *array, const char *name)
{
    RtSafetensors file = rt_safetensors_open(array->path, array->option);
    const RtStored *stored = rt_safetensors_find(&file, name);
    if (!stored)
        rt_fail("%s %s: it has no tensor '%s', which is to feed that input", array->option, array->path, name);
    if (!take_dtype(array, stored->dtype))
        rt_fail("%s %s: the tensor '%s' is of %s; write integers, floating-point numbers or BOOL", array->option,
                array->path, name, stored->dtype);
    array->first = array->map + (stored->data - file.map);
    array->rank = stored->rank;
    array->count = 1;
    for (int d = 0; d < stored->rank; d++)
        array->count *= array->size[d] = stored->size[d];
    rt_safetensors_close(&file);
}

static RtArray open_array(const char *path, const char *option, const char *name)
{
    RtArray array = { .path = path, .option = option };
    array.map = rt_map_file(path, option, &array.bytes);
    if (is_safetensors(path))
        take_tensor(&array, name);
    else if (rt_npy_is(&array))
        rt_npy_take(&array);
    else
        rt_fail("%s %s=%s: not an array: write it with numpy.save as .npy, or as the tensor '%s' of a .safetensors "
                "file",
                option, name, path, name);
    return array;
}

/* --- Do they fit? ------------------------------------------------------------------------------ */

static int64_t largest_shift(const RtFunction *f, const RtInput *of)
{
    int64_t shift = 0;
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++)
        if (!strcmp(input->of, of->name) && input->shift > shift)
            shift = input->shift;
    return shift;
}

/* "[records, 8, 17]" */
static char *wanted_text(const RtFunction *f, const RtInput *input)
{
    char *text = rt_text("[records");
    for (int d = 0; d < input->rank; d++)
        rt_append(&text, ", %lld",
                  (long long)(input->dim[d].size + (d == input->rank - 1 ? largest_shift(f, input) : 0)));
    rt_append(&text, "]");
    return text;
}

static char *shape_text(const RtArray *array)
{
    char *text = rt_text("[");
    for (int d = 0; d < array->rank; d++)
        rt_append(&text, "%s%lld", d ? ", " : "", (long long)array->size[d]);
    rt_append(&text, "]");
    return text;
}

static bool has_shape(const RtArray *array, const RtInput *input, int64_t more)
{
    bool has = array->rank == input->rank + 1;
    for (int d = 0; d < input->rank && has; d++)
        has = array->size[d + 1] == input->dim[d].size + (d == input->rank - 1 ? more : 0);
    return has;
}

/* Outputs may not need what next() reads at the end, but take what the step takes. */
static void check_shape(const RtArray *array, const RtData *data, const RtInput *input)
{
    const RtFunction *f = data->f;
    if (!has_shape(array, input, largest_shift(f, input)) && !has_shape(array, input, largest_shift(data->all, input)))
        rt_fail("%s %s=%s: the array is %s, but the input needs %s%s", array->option, input->name, array->path,
                shape_text(array), wanted_text(f, input),
                largest_shift(f, input) ? ", with what next() of it reads at the end" : "");
}

static void check_type(const RtArray *array, const RtInput *input)
{
    const bool is_integer = !rt_number_is_real(array->type) && array->type != DATA_BOOL;
    const bool fits = input->type == RT_F32 || is_integer || (input->type == RT_BOOL && array->type == DATA_BOOL);
    if (!fits)
        rt_fail("%s %s=%s: the input is of %s, and the array of %s; convert it", array->option, input->name,
                array->path, input->type == RT_I32 ? "i32" : "bool", array->format);
}

/* --- All of them --------------------------------------------------------------------------------- */

/* "--data image=FILE --data label=FILE" */
static char *usage_text(const char *option, const RtFunction *f)
{
    char *text = rt_text("%s", "");
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++)
        if (is_own(input))
            rt_append(&text, "%s%s %s=FILE", *text ? " " : "", option, input->name);
    return text;
}

/* The file for an input: of the last INPUT=FILE that names it, or the only FILE, which has tensors for all. */
static const char *file_for(const RtData *data, const char *const *given, const RtFunction *f, const RtInput *input)
{
    const char *file = NULL;
    for (const char *const *one = given; *one; one++) {
        const RtInput *other = named(f, *one);
        if (!other && named(data->all, *one))
            continue; /* an input that f does not read */
        const bool is_shared = !other && !given[1] && has_names(*one, data->option);
        if (!other && !strchr(*one, '=') && access(*one, F_OK) != 0)
            rt_fail("%s %s: cannot open it: %s", data->option, *one, strerror(errno));
        if (!other && !is_shared)
            rt_end(
                RT_EXIT_USAGE,
                "%s %s: this model trains on records: give %s, with .npy or .safetensors files or folders of them, or "
                "one .safetensors file with a tensor for each",
                data->option, *one, usage_text(data->option, f));
        if (other && !is_own(other))
            rt_end(RT_EXIT_USAGE, "%s %s: '%s' is next(%s), and gets the data of that", data->option, *one, other->name,
                   other->of);
        if (other == input && file)
            rt_end(RT_EXIT_USAGE, "%s %s=FILE is given twice", data->option, input->name);
        if (other == input && !strchr(*one, '=')[1])
            rt_end(RT_EXIT_USAGE, "%s %s: no file is named after the '='", data->option, *one);
        if (other == input || is_shared)
            file = is_shared ? *one : strchr(*one, '=') + 1;
    }
    if (!file)
        rt_end(RT_EXIT_USAGE, "%s: the input '%s' has no data: give %s", data->option, input->name,
               usage_text(data->option, f));
    return file;
}

static int64_t held_out(const RtData *data) { return (int64_t)(data->fraction * (double)data->records + 0.5); }

static void require(const RtData *data)
{
    const int64_t least = data->least, has = rt_data_sequences(data);
    const char *who = least == 1 ? "it" : "one batch", *remedy = least == 1 ? "" : " or a smaller batch";
    if (has >= least)
        return;
    if (data->share == RT_HELD_OUT)
        rt_fail("--eval-fraction %g: it holds out %lld records of %s, but %s needs %lld; give a larger fraction or "
                "more data",
                data->fraction, (long long)has, data->option, who, (long long)least);
    rt_fail("%s %s: %s needs %lld records, but it has %lld%s; give more data%s", data->option, data->source->name, who,
            (long long)least, (long long)has, data->share == RT_TRAINED ? " beside what is held out" : "", remedy);
}

/* The files of all inputs. */
static int find_sources(RtData *data, const char *const *given, const RtFunction *f)
{
    int files = 0;
    data->source = rt_allocate(f->ninputs, sizeof *data->source);
    data->column = rt_allocate(f->ninputs, sizeof *data->column);
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++) {
        if (!is_own(input))
            continue;
        const RtSource source = rt_source_of(file_for(data, given, f, input), data->option);
        if (source.weight > 0)
            rt_end(RT_EXIT_USAGE, "%s %s=%s: records have no weights: leave it out", data->option, input->name,
                   source.name);
        data->column[data->columns++] = (RtColumn){ input->name, files, source.files };
        data->source[data->sources++] = source;
        files += source.files;
    }
    return files;
}

static void open_column(RtData *data, const RtInput *input, const RtSource *source)
{
    int64_t records = 0;
    for (int i = 0; i < source->files; i++) {
        const RtArray array = open_array(source->file[i], data->option, input->name);
        check_shape(&array, data, input);
        check_type(&array, input);
        data->shard[data->count] = (RtShard){ .first = records, .count = array.size[0] };
        data->array[data->count++] = array;
        records += array.size[0];
    }
    if (source > data->source && records != data->records)
        rt_fail("%s %s=%s: it has %lld records, but %s has %lld", data->option, input->name, source->name,
                (long long)records, data->source->name, (long long)data->records);
    data->records = records;
}

static void open_arrays(RtData *data, const char *const *given, const RtFunction *f)
{
    const int files = find_sources(data, given, f);
    const RtSource *source = data->source;
    data->array = rt_allocate(files, sizeof *data->array);
    data->shard = rt_allocate(files, sizeof *data->shard);
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++)
        if (is_own(input))
            open_column(data, input, source++);
}

void rt_records_open(RtData *data, const char *const *given, const RtFunction *f)
{
    open_arrays(data, given, f);
    data->portions = 1;
    data->portion = rt_allocate(1, sizeof *data->portion);
    data->portion->count = data->share == RT_ALL        ? data->records
                           : data->share == RT_HELD_OUT ? held_out(data)
                                                        : data->records - held_out(data);
    require(data);
}

/* floor(a b / c), of numbers whose product may be too large. */
static int64_t scaled(int64_t a, int64_t b, int64_t c) { return a / c * b + a % c * (b / c) + a % c * (b % c) / c; }

/* Those held out lie evenly between the others, since arrays are often sorted: of N records, n are held out, record r
 * if floor((r + 1) n / N) > floor(r n / N). */
int64_t rt_records_at(const RtData *data, int64_t number)
{
    const int64_t all = data->records, own = data->portion->count;
    if (data->share == RT_ALL)
        return number;
    if (data->share == RT_TRAINED)
        return scaled(number, all, own);
    return scaled(number + 1, all, own) - (scaled(number + 1, all, own) * own == (number + 1) * all);
}

/* Each format that occurs, once. */
static void append_formats(char **text, const RtArray *array, int count)
{
    for (int i = 0; i < count; i++) {
        bool is_new = true;
        for (int k = 0; k < i && is_new; k++)
            is_new = strcmp(array[i].format, array[k].format) != 0;
        if (is_new)
            rt_append(text, "%s%s", i ? ", " : "", array[i].format);
    }
}

char *rt_records_words(const RtData *data)
{
    char *text = rt_text("%s of ", rt_count_text(data->portion->count, "record").text);
    for (const RtColumn *column = data->column; column < data->column + data->columns; column++) {
        rt_append(&text, "%s%s (", column > data->column ? ", " : "", column->input);
        if (column->count > 1)
            rt_append(&text, "%d files, ", column->count);
        append_formats(&text, data->array + column->first, column->count);
        rt_append(&text, ")");
    }
    if (data->share == RT_TRAINED)
        rt_append(&text, ", without those held out");
    return text;
}
