/* machine_read.c -- reads the text of a machine file. */
#include "machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Units ------------------------------------------------------------------------------------------- */

typedef enum { NONE, TEXT, COUNT, BYTES, SECONDS, FLOPS, BYTES_A_SECOND, FLOPS_A_SECOND, SHARE, PART } Unit;

static const struct {
    const char *text;    /* behind a prefix */
    double scale, most;  /* the unit of the number; the largest number */
    bool takes_a_prefix; /* G of "GB" */
    bool may_be_zero;
    const char *example;
} units[] = {
    [COUNT] = { "", 1, 1e18, false, false, "8" },
    [BYTES] = { "B", 1, 1e18, true, false, "80GB" },
    [SECONDS] = { "s", 1, 1e6, true, false, "2.5us" },
    [FLOPS] = { "FLOP", 1, 1e24, true, false, "1.1TFLOP" },
    [BYTES_A_SECOND] = { "B/s", 1, 1e18, true, false, "2.96TB/s" },
    [FLOPS_A_SECOND] = { "FLOP/s", 1, 1e24, true, false, "989.4TFLOP/s" },
    [SHARE] = { "%", 0.01, 1, false, false, "64.8%" },
    [PART] = { "%", 0.01, 1, false, true, "0%" },
};

static const struct {
    const char *key, *meaning;
    Unit x, y;
    bool is_needed;
} lines[N_LINES] = {
#define NEEDED true
#define OPTIONAL false
#define LINE(id, key, x, y, must, meaning) { key, meaning, x, y, must },
#include "machine.def"
};

static const char *const origin_text[] = {
    [MEASURED] = "measured", [PUBLISHED] = "published", [DATA_SHEET] = "data sheet", [ESTIMATE] = "estimate"
};

/* --- Columns -------------------------------------------------------------------------------------------- */

enum { MOST_VALUES = MOST_POINTS + 1 }; /* columns: one too many is seen */

/* A line of the file with those that continue it. */
typedef struct {
    Loc key, origin, source;
    int count;
    Loc value[MOST_VALUES]; /* columns */
} Entry;

typedef struct {
    Arena *arena;
    Diags *diags;
    const char *text;
    int length;
    Machine *machine;
    Loc at[N_LINES]; /* keys that have been read */
    Loc name;        /* of the last file's line: the place of errors about missing keys */
} Reader;

static bool wrong(const Reader *r, Loc at, const char *help, const char *what)
{
    error_at(r->diags, (Where){ .at = at, .help = help }, "%s", what);
    return false;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static char *words(const Reader *r, Loc loc)
{
    return arena_text(r->arena, "%.*s", loc.end - loc.begin, r->text + loc.begin);
}

static bool is_text(const Reader *r, Loc loc, const char *text)
{
    return loc.end - loc.begin == (int)strlen(text) && !memcmp(r->text + loc.begin, text, strlen(text));
}

static int end_of_line(const Reader *r, int at)
{
    while (at < r->length && r->text[at] != '\n')
        at++;
    return at;
}

/* The column that begins at *at, which goes to the next one: behind two blanks, or a tab. */
static Loc next_column(const Reader *r, int *at, int end)
{
    Loc column = { *at, *at };
    while (*at < end) {
        int next = *at;
        while (next < end && is_blank(r->text[next]))
            next++;
        const bool is_apart = next - *at > 1 || next == end || (next > *at && r->text[*at] != ' ');
        if (next > *at && is_apart) {
            *at = next;
            break;
        }
        *at = next > *at ? next : *at + 1;
        column.end = *at;
    }
    return column;
}

static Origin origin_of_column(const Reader *r, Loc column)
{
    for (Origin origin = MEASURED; origin <= ESTIMATE; origin++)
        if (is_text(r, column, origin_text[origin]))
            return origin;
    return NOT_GIVEN;
}

static void add_columns(const Reader *r, Entry *entry, int at, int end)
{
    while (at < end) {
        const Loc column = next_column(r, &at, end);
        if (entry->key.begin == entry->key.end)
            entry->key = column;
        else if (entry->origin.begin != entry->origin.end)
            entry->source = (Loc){ entry->source.end ? entry->source.begin : column.begin, column.end };
        else if (origin_of_column(r, column) != NOT_GIVEN)
            entry->origin = column;
        else if (entry->count < MOST_VALUES)
            entry->value[entry->count++] = column;
    }
}

/* The next entry from *at on, without comments; false: there is none. */
static bool next_entry(const Reader *r, int *at, Entry *entry)
{
    *entry = (Entry){ 0 };
    for (; *at < r->length; *at = end_of_line(r, *at) + 1) {
        int begin = *at;
        const int end = end_of_line(r, begin);
        while (begin < end && is_blank(r->text[begin]))
            begin++;
        if (begin == end || r->text[begin] == '#')
            continue;
        if (begin == *at && entry->key.end)
            return true;
        add_columns(r, entry, begin, end);
    }
    return entry->key.end > 0;
}

/* --- Numbers ------------------------------------------------------------------------------------------- */

static double of_prefix(char c)
{
    static const char prefixes[] = "num kMGTPE";
    const char *found = c == ' ' ? NULL : strchr(prefixes, c);
    return c && found ? pow(10, 3.0 * (double)(found - prefixes - 3)) : NAN;
}

/* The scale of "GB" in bytes; NAN: it is no such unit. */
static double scale_of(Unit unit, const char *text)
{
    const size_t length = strlen(text), own = strlen(units[unit].text);
    if (!strcmp(text, units[unit].text))
        return units[unit].scale;
    if (units[unit].takes_a_prefix && length == own + 1 && !strcmp(text + 1, units[unit].text))
        return of_prefix(*text) * units[unit].scale;
    return NAN;
}

static bool read_number(const Reader *r, Loc loc, Unit unit, double *number)
{
    char *text = words(r, loc), *end;
    const char *help = arena_text(r->arena, "such as %s", units[unit].example);
    *number = strtod(text, &end);
    if (end == text || text[strspn(text, "+-.0123456789eE")] == 'x' || !isfinite(*number))
        return wrong(r, loc, help, arena_text(r->arena, "'%s' is no number", visible_text(r->arena, text)));
    while (is_blank(*end))
        end++;
    const double scale = scale_of(unit, end);
    const Loc at = { loc.begin + (int)(end - text), loc.end };
    if (isnan(scale) && !*end)
        return wrong(r, loc, help, arena_text(r->arena, "the number lacks its unit, %s", units[unit].text));
    if (isnan(scale))
        return wrong(r, at, help,
                     *units[unit].text ? arena_text(r->arena, "the unit is not %s", units[unit].text)
                                       : "the number has no unit");
    *number *= scale;
    if (*number < 0 || (*number == 0 && !units[unit].may_be_zero))
        return wrong(r, loc, help, "the number must be above 0");
    if (*number > units[unit].most)
        return wrong(r, loc, help, units[unit].scale < 1 ? "a share is at most 100 %" : "the number is too large");
    if (unit == COUNT && *number != floor(*number))
        return wrong(r, loc, help, "the number must be a whole number");
    return true;
}

/* A point x:y of a curve. */
static bool read_point(const Reader *r, Loc loc, LineId line, Point *point)
{
    const char *colon = memchr(r->text + loc.begin, ':', (size_t)(loc.end - loc.begin));
    const int at = colon ? (int)(colon - r->text) : loc.end;
    if (!colon)
        return wrong(r, loc,
                     arena_text(r->arena, "a curve has points x:y, such as %s:%s", units[lines[line].x].example,
                                units[lines[line].y].example),
                     "this is no point of a curve");
    return read_number(r, (Loc){ loc.begin, at }, lines[line].x, &point->x) &&
           read_number(r, (Loc){ at + 1, loc.end }, lines[line].y, &point->y);
}

static bool read_curve(Reader *r, const Entry *entry, LineId line, MachineLine *made)
{
    made->point = NEW_ARRAY(r->arena, Point, MOST_POINTS);
    for (int i = 0; i < entry->count; i++)
        for (int at = entry->value[i].begin, end; at < entry->value[i].end; at = end + 1) {
            for (end = at; end < entry->value[i].end && !is_blank(r->text[end]);)
                end++;
            const Loc loc = { at, end };
            Point point;
            if (made->count == MOST_POINTS)
                return wrong(r, loc, NULL, arena_text(r->arena, "a curve has at most %d points", MOST_POINTS));
            if (!read_point(r, loc, line, &point))
                return false;
            if (made->count && point.x <= made->point[made->count - 1].x)
                return wrong(r, loc, "points are in order of x, which rises",
                             "this point is not behind the one before");
            made->point[made->count++] = point;
        }
    return true;
}

/* --- Entries --------------------------------------------------------------------------------------------- */

static LineId find_line(const Reader *r, Loc key)
{
    LineId line = 0;
    while (line < N_LINES && !is_text(r, key, lines[line].key))
        line++;
    return line;
}

/* The line whose key these words begin with, and one blank. */
static LineId key_before_blank(const Reader *r, Loc words)
{
    LineId found = N_LINES;
    for (LineId line = 0; line < N_LINES; line++) {
        const int length = (int)strlen(lines[line].key), own = words.end - words.begin;
        if (own > length && !memcmp(r->text + words.begin, lines[line].key, (size_t)length) &&
            r->text[words.begin + length] == ' ' && (found == N_LINES || length > (int)strlen(lines[found].key)))
            found = line;
    }
    return found;
}

static bool unknown_key(const Reader *r, Loc key)
{
    const LineId begins = key_before_blank(r, key);
    if (begins != N_LINES)
        return wrong(r, key,
                     arena_text(r->arena, "put two blanks or more between '%s' and its value", lines[begins].key),
                     "the key is not separated from its value");
    NearMiss near = { .name = words(r, key) };
    for (LineId line = 0; line < N_LINES; line++)
        offer(&near, lines[line].key);
    const char *help = did_you_mean(r->arena, &near);
    return wrong(r, key, help ? help : "docs/plan.md lists the lines of a machine",
                 arena_text(r->arena, "a machine has no '%s'", visible_text(r->arena, near.name)));
}

static bool read_value(Reader *r, const Entry *entry, LineId line, MachineLine *made)
{
    if (entry->count == 0)
        return wrong(r, entry->key, lines[line].meaning, arena_text(r->arena, "'%s' has no value", lines[line].key));
    const Loc whole = { entry->value[0].begin, entry->value[entry->count - 1].end };
    if (lines[line].y == TEXT) {
        made->text = words(r, whole);
        return true;
    }
    if (lines[line].x != NONE && memchr(r->text + whole.begin, ':', (size_t)(whole.end - whole.begin)))
        return read_curve(r, entry, line, made);
    made->count = 1; /* of a curve: the same everywhere */
    made->point = NEW(r->arena, Point);
    made->point->x = 1;
    return read_number(r, whole, lines[line].y, &made->point->y);
}

static bool read_entry(Reader *r, const Entry *entry)
{
    const LineId line = find_line(r, entry->key);
    if (line == N_LINES)
        return unknown_key(r, entry->key);
    if (r->at[line].end)
        return wrong(r, entry->key, "remove one of the two lines",
                     arena_text(r->arena, "'%s' is given a second time", lines[line].key));
    r->at[line] = entry->key;
    MachineLine made = { .origin = entry->origin.end ? origin_of_column(r, entry->origin) : DATA_SHEET };
    if (!read_value(r, entry, line, &made))
        return false;
    if (lines[line].y != TEXT && !entry->source.end)
        return wrong(r, entry->key,
                     "behind the value: measured, published, data sheet or estimate; then the source, two blanks apart",
                     arena_text(r->arena, "'%s' does not say where its value comes from", lines[line].key));
    made.source = entry->source.end ? words(r, entry->source) : "";
    r->machine->line[line] = made;
    return true;
}

/* --- What belongs together -------------------------------------------------------------------------------- */

/* "of a kernel that does next to nothing: launch  2.5us  data sheet  its title" */
static const char *line_help(const Reader *r, LineId line)
{
    const char *value = lines[line].y == TEXT ? "H100 SXM5, 8 in a machine" : units[lines[line].y].example;
    return arena_text(r->arena, "%s: %s  %s%s", lines[line].meaning, lines[line].key, value,
                      lines[line].y == TEXT ? "" : "  data sheet  its title");
}

static void needs(const Reader *r, LineId line, LineId of)
{
    if (r->at[of].end && !r->at[line].end)
        wrong(r, r->at[of], line_help(r, line),
              arena_text(r->arena, "'%s' needs a line '%s', too", lines[of].key, lines[line].key));
}

static bool any_of(const Reader *r, LineId first, LineId last)
{
    for (LineId line = first; line <= last; line++)
        if (r->at[line].end)
            return true;
    return false;
}

static void missing(const Reader *r, const char *what, const char *help)
{
    wrong(r, r->name, help, arena_text(r->arena, "the machine has no line '%s'", what));
}

static void check_lines(const Reader *r)
{
    for (LineId line = 0; line < N_LINES; line++)
        if (lines[line].is_needed && !r->at[line].end)
            missing(r, lines[line].key, line_help(r, line));
    for (int i = 0; i <= LINE_flops_e4m3 - LINE_flops_f32; i++) {
        needs(r, LINE_products_f32 + (LineId)i, LINE_flops_f32 + (LineId)i);
        needs(r, LINE_flops_f32 + (LineId)i, LINE_products_f32 + (LineId)i);
    }
    if (!r->at[LINE_flops_f32].end)
        missing(r, "flops f32", "every trainer has products in f32; other precisions may be absent");
    const bool has_f32 = any_of(r, LINE_attention_forward_f32_32, LINE_attention_forward_f32_256);
    const bool has_16_bits = any_of(r, LINE_attention_forward_32, LINE_attention_forward_256);
    if (has_f32 != any_of(r, LINE_attention_backward_f32_32, LINE_attention_backward_f32_256))
        missing(r, has_f32 ? "attention backward f32 64" : "attention forward f32 64", "both directions, or none");
    if (has_16_bits != any_of(r, LINE_attention_backward_32, LINE_attention_backward_256))
        missing(r, has_16_bits ? "attention backward bf16 64" : "attention forward bf16 64",
                "both directions, or none");
    for (int i = 1; i <= LINE_within_rotate - LINE_within; i++) {
        needs(r, LINE_within, LINE_within + (LineId)i);
        needs(r, LINE_between, LINE_between + (LineId)i);
    }
    needs(r, LINE_latency_within, LINE_within);
    needs(r, LINE_latency_between, LINE_between);
    needs(r, LINE_message, LINE_within);
    needs(r, LINE_message, LINE_between);
}

static void check_memory(const Reader *r)
{
    const MachineLine *all = &r->machine->line[LINE_memory], *taken = &r->machine->line[LINE_taken];
    if (all->count && taken->count && taken->point->y >= all->point->y)
        wrong(r, r->at[LINE_taken], NULL, "'memory taken' is more than 'memory'");
}

const Machine *parse_machine(Arena *arena, Diags *d)
{
    Reader r = { arena, d, d->source->text, d->source->length, NEW(arena, Machine), .name = { 0 } };
    const int before = d->errors;
    Entry entry;
    for (int at = 0; next_entry(&r, &at, &entry);) {
        read_entry(&r, &entry);
        if (!r.name.end || is_text(&r, entry.key, "name"))
            r.name = entry.key;
    }
    if (d->errors == before)
        check_lines(&r);
    check_memory(&r);
    return d->errors == before ? r.machine : NULL;
}
