/* report_page.c -- mpc report --html: one page that needs no other file, filled with the report as JSON, the picture of
 * the step, and the text of the model.  What it looks like is in driver/page. */
#include "report.h"

#include "drawing.h"
#include "page.h"

#include <stdlib.h>
#include <string.h>

/* As the text of a script element, which ends at "</". */
static void write_data(const Report *r, FILE *out)
{
    cJSON *json = report_json(r);
    cJSON_AddStringToObject(json, "title", picture_title(r));
    cJSON_AddStringToObject(json, "text", r->run->source.text);
    if (r->picture)
        add_timeline_json(r, json);
    else if (r->no_picture)
        cJSON_AddStringToObject(json, "no_timeline", r->no_picture);
    for (const char *at = json_text(&r->run->arena, json, false); *at; at++)
        fputs(*at == '<' ? "\\u003c" : (char[]){ *at, '\0' }, out);
    fputc('\n', out);
}

bool write_report_page(const Report *r, const char *path)
{
    static const struct {
        const char *line;
        const char *const *text; /* NULL: the data */
    } parts[] = {
        { "STYLE\n", page_css }, { "DRAWING\n", drawing_css },  { "DATA\n", NULL },
        { "SCRIPT\n", page_js }, { "TIMELINE\n", timeline_js },
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    NewFile file;
    if (!open_new(r->run, &file, path))
        return false;
    for (const char *const *line = page_html; *line; line++) {
        int i = 0;
        while (i < PARTS && strcmp(*line, parts[i].line) != 0)
            i++;
        if (i == PARTS)
            fputs(*line, file.out);
        else if (parts[i].text)
            write_embedded(parts[i].text, file.out);
        else
            write_data(r, file.out);
    }
    return close_new(r->run, &file);
}
