/* name_map.c -- the grammar of .map files. */
#include "name_map.h"

#include <string.h>

static bool refuse(Scan *scan, Loc loc, const char *message, const char *help)
{
    error_at(&scan->map->diags, (Where){ .at = loc, .help = help }, "%s", message);
    return false;
}

/* --- Axes ----------------------------------------------------------------------------------- */

static bool read_item(Scan *scan, Item *item)
{
    double number;
    Loc loc = { 0 };
    peek_sign(scan);
    const int begin = scan->at;
    if (accept_sign(scan, '*'))
        *item = (Item){ .kind = OF_COPIES };
    else if (scan_number(scan, &number))
        *item = (Item){ .kind = number == 1 ? OF_ONE : OF_TARGETS, .number = (int64_t)number };
    else if (*(item->dim = scan_word(scan, &loc)))
        item->kind = OF_DIM;
    else
        return refuse(scan, loc, "a dim should stand here", "an axis is dims of the model: [kv_heads head, embed]");
    item->loc = (Loc){ begin, scan->at };
    return true;
}

static bool read_product(Scan *scan, Product *product)
{
    peek_sign(scan);
    product->loc.begin = scan->at;
    do {
        if (product->count == MAX_ITEMS)
            return refuse(scan, product->loc, "an axis has at most 8 dims", NULL);
        if (!read_item(scan, &product->item[product->count++]))
            return false;
        product->loc.end = scan->at;
    } while (!strchr(",]+()\n", peek_sign(scan)));
    return true;
}

static bool read_parts(Scan *scan, Axis *axis)
{
    do {
        if (axis->count == MAX_ITEMS)
            return refuse(scan, axis->loc, "an axis has at most 8 parts", NULL);
        if (!read_product(scan, &axis->part[axis->count++]))
            return false;
    } while (accept_sign(scan, '+'));
    return true;
}

static bool read_axis(Scan *scan, Axis *axis)
{
    peek_sign(scan);
    axis->loc.begin = scan->at;
    if (!read_parts(scan, axis))
        return false;
    if (axis->count == 1 && accept_sign(scan, '(')) {
        axis->around = axis->part[0];
        axis->count = 0;
        axis->part[0] = (Product){ 0 };
        if (!read_parts(scan, axis) || !expect_sign(scan, ')', "the parts of an axis"))
            return false;
    }
    axis->loc.end = scan->at;
    return true;
}

static bool read_axes(Scan *scan, MapLine *line)
{
    peek_sign(scan);
    line->axes_loc.begin = scan->at;
    if (!expect_sign(scan, '[', "the name of a tensor"))
        return false;
    while (!accept_sign(scan, ']')) {
        if (line->naxes == MAX_ITEMS)
            return refuse(scan, line->axes_loc, "a tensor has at most 8 axes", NULL);
        if (line->naxes && !expect_sign(scan, ',', "an axis"))
            return false;
        if (!read_axis(scan, &line->axis[line->naxes++]))
            return false;
    }
    line->axes_loc.end = scan->at;
    return true;
}

/* --- Lines ---------------------------------------------------------------------------------- */

static bool read_target(Scan *scan, MapTarget *target)
{
    double number;
    Loc loc;
    target->path = scan_name(scan, &target->loc);
    if (!*target->path || !accept_sign(scan, '['))
        return *target->path;
    target->dim = scan_word(scan, &loc);
    if (!*target->dim || !expect_sign(scan, '=', "a dim") || !scan_number(scan, &number))
        return refuse(scan, loc, "a part of a parameter is written PARAMETER[dim = 0]", NULL);
    target->index = (int64_t)number;
    return expect_sign(scan, ']', "the part of a parameter");
}

static bool read_tensor(Scan *scan, MapLine ***end)
{
    MapLine *line = NEW(&scan->run->arena, MapLine);
    line->name = scan_name(scan, &line->loc);
    if (!*line->name || (is_list_name(line->name) && !read_list(scan, line->name, line->loc)))
        return false;
    if (!read_axes(scan, line) || !expect_sign(scan, '=', "the axes of a tensor"))
        return false;
    do {
        if (line->ntargets == MAX_ITEMS)
            return refuse(scan, line->loc, "a tensor has at most 8 parameters", NULL);
        if (!read_target(scan, &line->target[line->ntargets++]))
            return false;
    } while (accept_sign(scan, ','));
    **end = line;
    *end = &line->next;
    return true;
}

/* `adapter alpha: a.lora_A.weight [low, embed] = h.*.a`: a line of a list of its own. */
static bool read_adapter(Scan *scan)
{
    NameMap *map = scan->map;
    Loc loc;
    const char *alpha = scan_word(scan, &loc);
    if (!*alpha || !expect_sign(scan, ':', "the const of an adapter"))
        return *alpha || refuse(scan, loc, "a const of the model should stand here, the adapter's lora_alpha", NULL);
    if (map->alpha && strcmp(map->alpha, alpha) != 0)
        return refuse(scan, loc, "all adapters of a map have one alpha", NULL);
    MapLine *others = map->adapters, **end = &map->adapters;
    map->alpha = alpha;
    map->alpha_loc = loc;
    if (!read_tensor(scan, &end))
        return false;
    map->adapters->name = arena_text(&scan->run->arena, PEFT_PREFIX "%s", map->adapters->name);
    map->adapters->next = others;
    return true;
}

static bool read_aside(Scan *scan, bool is_tied)
{
    Loc loc;
    Aside *aside = NEW(&scan->run->arena, Aside);
    aside->name = scan_name(scan, &aside->loc);
    if (!*aside->name || (is_tied && !expect_sign(scan, '=', "the name of a tensor")))
        return false;
    aside->same = is_tied ? scan_name(scan, &loc) : NULL;
    if (is_tied && !*aside->same)
        return false;
    aside->next = scan->map->asides;
    scan->map->asides = aside;
    return true;
}

static bool read_prefix(Scan *scan)
{
    Loc loc;
    scan->map->prefix = scan_name(scan, &loc);
    return *scan->map->prefix;
}

static bool read_model(Scan *scan)
{
    Loc loc;
    scan->map->model = scan_name(scan, &loc);
    return *scan->map->model;
}

static bool read_line(Scan *scan, MapLine ***end)
{
    bool good = true;
    if (peek_sign(scan) == '\n')
        return true;
    if (is_keyword(scan, "need"))
        good = read_need(scan, false);
    else if (is_keyword(scan, "cycle"))
        good = read_need(scan, true);
    else if (is_keyword(scan, "if"))
        return read_condition(scan, &good) && (!good || read_line(scan, end)); /* else the line is left out */
    else if (is_keyword(scan, "set"))
        good = read_set(scan);
    else if (is_keyword(scan, "harmless"))
        good = read_harmless(scan);
    else if (is_keyword(scan, "alias"))
        good = read_alias(scan);
    else if (is_keyword(scan, "default"))
        good = read_default(scan);
    else if (is_keyword(scan, "prefix"))
        good = read_prefix(scan);
    else if (is_keyword(scan, "model"))
        good = read_model(scan);
    else if (is_keyword(scan, "adapter"))
        good = read_adapter(scan);
    else if (is_keyword(scan, "ignore"))
        good = read_aside(scan, false);
    else if (is_keyword(scan, "tied"))
        good = read_aside(scan, true);
    else
        good = read_tensor(scan, end);
    return good && expect_sign(scan, '\n', "a statement");
}

bool read_name_map(Run *run, NameMap *map, const char *path, const struct cJSON *config, const char *config_path)
{
    const char *why;
    const Source *source = read_text(run, path, &why);
    if (!source)
        return run_failed(run, "cannot read the map %s: %s: give one with --map=FILE.map", path, why);
    *map = (NameMap){ .source = *source, .prefix = "" };
    map->diags =
        (Diags){ .arena = &run->arena, .source = &map->source, .out = run->diags.out ? run->diags.out : stderr };
    MapLine **end = &map->lines;
    Scan scan = { .run = run, .map = map, .config = config };
    while (scan.at < map->source.length) {
        read_line(&scan, &end); /* errors are counted: further lines are read */
        scan.at += (int)strcspn(map->source.text + scan.at, "\n");
        scan.at += scan.at < map->source.length;
    }
    if (map->diags.errors == 0)
        report_unread(&scan, config_path);
    drop_key_rules(map);
    run->diags.errors += map->diags.errors;
    return map->diags.errors == 0;
}
