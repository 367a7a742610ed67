/* rewrite.c -- writes a layout into a model's file: edits at places that the tree of the file names.
 *
 *   train {                                       train {
 *       batch = 64   # as before                      batch = 64   # as before
 *   }                                                 microbatch = 4
 *                                                 }
 *
 *   parallel {                                    # only for tests
 *       mesh  dp = 1    # only for tests   =>     # mpc plan, h100: 64 ranks
 *       shard batch over dp                       #   1.25 s a step
 *   }  # the end                                  parallel {
 *                                                     mesh  dp = 64
 *                                                     shard batch over dp
 *                                                 }  # the end
 *
 * A comment is told by its first two words, and further lines of it by their indentation, so that the next call can
 * replace it.
 */
#include "rewrite.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_EDITS = 5 };
static const char INDENT[] = "    ", CONTINUED[] = "#   ", WORD_ENDS[] = " ,:\r\n";

/* The bytes from `begin` to `end` become `text`. */
typedef struct {
    int begin, end;
    const char *text;
} Edit;

/* One of `train { }`; is_default: so it is without being said. */
typedef struct {
    const char *name;
    int64_t value;
    bool is_default;
} Setting;
enum { MOST_SETTINGS = 2 };

typedef struct {
    Arena *arena;
    const Source *source;
    const char *newline; /* as the file has it */
    Edit edit[MOST_EDITS];
    int count;
} Rewrite;

/* In the order of the file; at one place, the earlier call comes first. */
static void add_edit(Rewrite *r, int begin, int end, const char *text)
{
    int at = r->count++;
    for (; at && r->edit[at - 1].begin > begin; at--)
        r->edit[at] = r->edit[at - 1];
    r->edit[at] = (Edit){ begin, end, text };
}

/* --- Lines ---------------------------------------------------------------------------------------------------- */

static int begin_of_line(const Source *source, int at)
{
    while (at > 0 && source->text[at - 1] != '\n')
        at--;
    return at;
}

static int skip_blanks(const Source *source, int at)
{
    while (at < source->length && strchr(" \t\r", source->text[at]) && source->text[at])
        at++;
    return at;
}

/* The end of the line, at its '\n' or at the end of the file. */
static int end_of_line(const Source *source, int at)
{
    while (at < source->length && source->text[at] != '\n')
        at++;
    return at;
}

/* The blanks with which the line of `at` begins. */
static const char *indentation_at(Rewrite *r, int at)
{
    const int begin = begin_of_line(r->source, at), end = skip_blanks(r->source, begin);
    return arena_text(r->arena, "%.*s", end - begin, r->source->text + begin);
}

/* The text with the line ends of the file. */
static const char *with_newlines(Rewrite *r, const char *text)
{
    const char *made = "";
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        made = arena_text(r->arena, "%s%.*s%s", made, (int)(end - text), text, r->newline);
    return arena_text(r->arena, "%s%s", made, text);
}

/* --- Comments ------------------------------------------------------------------------------------------------- */

/* "# first", "#   further", each line behind `indent`. */
static const char *comment_lines(Rewrite *r, const char *comment, const char *indent)
{
    const char *made = "";
    for (const char *line = comment; *line;) {
        const int length = (int)strcspn(line, "\n");
        made = arena_text(r->arena, "%s%s%s%.*s\n", made, indent, *made ? CONTINUED : "# ", length, line);
        line += length + (line[length] == '\n');
    }
    return made;
}

/* Those between two places of the file, each as a line. */
static const char *comments_between(Rewrite *r, int begin, int end, const char *indent)
{
    const Source *source = r->source;
    const char *made = "";
    bool quoted = false;
    for (int at = begin; at < end; at++) {
        quoted = source->text[at] == '"' ? !quoted : quoted;
        if (quoted || source->text[at] != '#')
            continue;
        int last = end_of_line(source, at);
        const int next = last;
        while (last > at && strchr(" \t\r", source->text[last - 1]))
            last--;
        made = arena_text(r->arena, "%s%s%.*s\n", made, indent, last - at, source->text + at);
        at = next;
    }
    return made;
}

static bool is_comment(const Source *source, int line)
{
    const int at = skip_blanks(source, line);
    return at < source->length && source->text[at] == '#';
}

static bool begins_with(const Source *source, int at, const char *text, int length)
{
    return source->length - at >= length && memcmp(source->text + at, text, (size_t)length) == 0;
}

/* The length of the first two words of a line. */
static int two_words(const char *line)
{
    int length = (int)strcspn(line, WORD_ENDS);
    if (line[length] == ' ')
        length += 1 + (int)strcspn(line + length + 1, WORD_ENDS);
    return length;
}

/* The first of the lines of comments just above the line. */
static int comments_above(const Source *source, int line)
{
    while (line > 0 && is_comment(source, begin_of_line(source, line - 1)))
        line = begin_of_line(source, line - 1);
    return line;
}

/* Is the line a comment with these two words first? */
static bool has_words(const Source *source, int line, const char *words, int length)
{
    const int at = skip_blanks(source, line);
    return begins_with(source, at, "# ", 2) && begins_with(source, at + 2, words, length) &&
           (at + 2 + length == source->length || strchr(WORD_ENDS, source->text[at + 2 + length]));
}

/* Removes what an earlier call wrote above the line. */
static void remove_old_comment(Rewrite *r, int line, const char *comment)
{
    const Source *source = r->source;
    const int words = two_words(comment);
    int begin = comments_above(source, line);
    while (begin < line && !has_words(source, begin, comment, words))
        begin = end_of_line(source, begin) + 1;
    if (begin == line)
        return;
    int end = end_of_line(source, begin) + 1;
    while (end < line && begins_with(source, skip_blanks(source, end), CONTINUED, (int)strlen(CONTINUED)))
        end = end_of_line(source, end) + 1;
    add_edit(r, begin, end, "");
}

/* --- Settings of train ------------------------------------------------------------------------------------------- */

static const Ast *statement_of(const Ast *list, AstKind kind, const char *name)
{
    while (list && (list->kind != kind || (name && strcmp(list->name, name) != 0)))
        list = list->next;
    return list;
}

/* "    microbatch = 8", with the sign below that of the setting before. */
static const char *setting_line(Rewrite *r, const Ast *before, const Setting *setting)
{
    const Source *source = r->source;
    const char *sign =
        before ? memchr(source->text + before->loc.begin, '=', (size_t)(before->loc.end - before->loc.begin)) : NULL;
    const int column = sign && before->kind == A_SETTING ? (int)(sign - source->text) - before->loc.begin : 0;
    const int least = (int)strlen(setting->name) + 1;
    return arena_text(r->arena, "%-*s= %" PRId64, column > least ? column : least, setting->name, setting->value);
}

static const char *setting_lines(Rewrite *r, const Ast *before, const Setting *setting, int count, const char *between)
{
    const char *lines = "";
    for (int i = 0; i < count; i++)
        lines = arena_text(r->arena, "%s%s%s", lines, i ? between : "", setting_line(r, before, &setting[i]));
    return lines;
}

/* Behind a statement, or behind the brace. */
static void insert_settings(Rewrite *r, const Ast *train, const Ast *before, const Setting *setting, int count)
{
    const Source *source = r->source;
    const char *brace = memchr(source->text + train->loc.begin, '{', (size_t)(train->loc.end - train->loc.begin));
    const int opened = (int)(brace - source->text) + 1, at = before ? before->loc.end : opened;
    const bool is_one_line = end_of_line(source, opened) >= train->loc.end;
    const int next = skip_blanks(source, at);
    const char *outer = indentation_at(r, train->loc.begin);
    const char *indent = before && !is_one_line && begin_of_line(source, before->loc.begin) > opened
                             ? indentation_at(r, before->loc.begin)
                             : arena_text(r->arena, "%s%s", outer, INDENT);
    const char *lines = setting_lines(r, before, setting, count, arena_text(r->arena, "%s%s", r->newline, indent));
    if (source->text[next] == '\n' || source->text[next] == '#') {
        const int line = end_of_line(source, at) + 1;
        add_edit(r, line, line, arena_text(r->arena, "%s%s%s", indent, lines, r->newline));
        return;
    }
    if (before && is_one_line)
        add_edit(r, opened, before->loc.begin, arena_text(r->arena, "%s%s", r->newline, indent));
    add_edit(r, at, next, arena_text(r->arena, "%s%s%s%s%s", r->newline, indent, lines, r->newline, outer));
}

static const Ast *last_of(const Ast *list)
{
    while (list && list->next)
        list = list->next;
    return list;
}

/* In place of old values; new ones behind those that they belong to. */
static void set_settings(Rewrite *r, const Ast *train, const Setting *setting, int count)
{
    const Ast *behind = statement_of(train->body, A_SETTING, "batch");
    Setting added[MOST_SETTINGS];
    int nadded = 0;
    for (int i = 0; i < count; i++) {
        const Ast *old = statement_of(train->body, A_SETTING, setting[i].name);
        behind = old ? old : behind;
        if (old)
            add_edit(r, old->child->loc.begin, old->child->loc.end, arena_text(r->arena, "%" PRId64, setting[i].value));
        else if (!setting[i].is_default)
            added[nadded++] = setting[i];
    }
    if (nadded)
        insert_settings(r, train, behind ? behind : last_of(train->body), added, nadded);
}

/* --- The whole --------------------------------------------------------------------------------------------------- */

static const char *without_end(Rewrite *r, const char *block)
{
    int length = (int)strlen(block);
    while (length && block[length - 1] == '\n')
        length--;
    return arena_text(r->arena, "%.*s", length, block);
}

/* A `train { }` of its own, where the file has none; "": there is nothing to say. */
static const char *new_train(Rewrite *r, const Setting *setting, int count)
{
    while (count && setting[count - 1].is_default)
        count--;
    const char *lines = setting_lines(r, NULL, setting, count, arena_text(r->arena, "\n%s", INDENT));
    return *lines ? arena_text(r->arena, "train {\n%s%s\n}\n\n", INDENT, lines) : "";
}

static void replace_block(Rewrite *r, const Ast *parallel, const char *train, const char *block, const char *comment)
{
    const int line = begin_of_line(r->source, parallel->loc.begin), above = comments_above(r->source, line);
    const char *indent = indentation_at(r, line);
    const char *kept = comments_between(r, parallel->loc.begin, parallel->loc.end, indent);
    if (*train)
        add_edit(r, above, above, with_newlines(r, train));
    if (*comment)
        remove_old_comment(r, line, comment);
    add_edit(r, line, parallel->loc.end,
             with_newlines(r, arena_text(r->arena, "%s%s%s%s", kept, comment_lines(r, comment, indent), indent,
                                         without_end(r, block))));
}

/* What makes the file end with an empty line, if there is anything in it. */
static const char *empty_line(const Source *source)
{
    const int last = source->length ? begin_of_line(source, source->length - 1) : 0;
    if (source->length == 0)
        return "";
    if (source->text[source->length - 1] != '\n')
        return "\n\n";
    return skip_blanks(source, last) == source->length - 1 ? "" : "\n";
}

static void append_block(Rewrite *r, const char *train, const char *block, const char *comment)
{
    const Source *source = r->source;
    add_edit(r, source->length, source->length,
             with_newlines(r, arena_text(r->arena, "%s%s%s%s\n", empty_line(source), train,
                                         comment_lines(r, comment, ""), without_end(r, block))));
}

static const char *edited(Rewrite *r)
{
    const Source *source = r->source;
    const char *made = "";
    int at = 0;
    for (int i = 0; i < r->count; at = r->edit[i++].end)
        made = arena_text(r->arena, "%s%.*s%s", made, r->edit[i].begin - at, source->text + at, r->edit[i].text);
    return arena_text(r->arena, "%s%.*s", made, source->length - at, source->text + at);
}

const char *with_layout(Arena *arena, const Source *source, const Ast *file, const char *block, const char *comment,
                        int64_t microbatch, int64_t abreast)
{
    const char *first = memchr(source->text, '\n', (size_t)source->length);
    Rewrite r = { .arena = arena,
                  .source = source,
                  .newline = first && first > source->text && first[-1] == '\r' ? "\r\n" : "\n" };
    const Ast *parallel = statement_of(file, A_PARALLEL, NULL), *train = statement_of(file, A_TRAIN, NULL);
    Setting setting[MOST_SETTINGS];
    int count = 0;
    if (microbatch > 0)
        setting[count++] = (Setting){ "microbatch", microbatch, false };
    if (abreast > 0)
        setting[count++] = (Setting){ "abreast", abreast, abreast == 1 };
    const char *added = train ? "" : new_train(&r, setting, count);
    if (train)
        set_settings(&r, train, setting, count);
    if (parallel)
        replace_block(&r, parallel, added, block, comment);
    else
        append_block(&r, added, block, comment);
    return edited(&r);
}
