/* pipeline_text.c -- see pipeline_text.h. */
#include "pipeline_text.h"

#include "infer.h"
#include "schedule/slots.h"
#include "split_loop.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The number of a rank's stage in that chunk, in the order of the model. */
static int stage_at(const Module *m, const MicroParts *parts, int rank, int chunk)
{
    const int ranks = count_kinds(m);
    const bool turns = !runs_to_last_rank(part_doing(parts, FORWARD_ACTION, chunk)->loop[0]);
    return chunk * ranks + (turns ? ranks - 1 - rank : rank);
}

/* stage 1 (h 3..5): the copies of each repeat. */
static void write_stage(Module *m, const MicroParts *parts, int rank, int chunk, FILE *out)
{
    const StagePart *part = part_doing(parts, FORWARD_ACTION, chunk);
    const char *before = "";
    fprintf(out, " stage %d (", stage_at(m, parts, rank, chunk));
    for (int i = 0; i < part->nloops; i++) {
        if (!is_on(ranks_passed(m, part->loop[i]), rank))
            continue;
        const StageCopies c = stage_copies(parts, chunk, i, rank);
        fprintf(out, "%s%s ", before, c.name);
        if (c.count == 0)
            fputs("none", out);
        else
            fprintf(out, c.count == 1 ? "%" PRId64 : "%" PRId64 "..%" PRId64, c.first, c.first + c.count - 1);
        before = ", ";
    }
    fputc(')', out);
}

/* All but those of copies, which the axis splits. */
static void write_params(const Module *m, int rank, FILE *out)
{
    const char *before = " params ";
    for (const Param *param = m->params; param; param = param->next) {
        Axes split = 0;
        for (int i = 0; i < param->type.rank; i++)
            split |= split_axes(param->type.dim[i].split);
        if (split >> m->kind_axis & 1 || !is_on(param->type.on, rank))
            continue;
        fprintf(out, "%s%%%s", before, param->name);
        before = ", ";
    }
}

static void begin_transfer(Module *m, const StagePart *part, const Value *value, FILE *out)
{
    Type type = value->type;
    type.on = (RankSet){ 0 };
    fprintf(out, "\n    transfer %c %%%s : %s ", action_letter[part->kind], value->name, type_text(m, &type));
}

/* What a loop carries from stage to stage. */
static void write_carried(Module *m, const MicroParts *parts, const StagePart *part, const Op *loop, FILE *out)
{
    const int ranks = count_kinds(m);
    const Func *body = find_func(m, loop->attrs.callee);
    const RankSet passed = ranks_passed(m, loop);
    for (int i = 0; i < count_passed_on(loop) && !is_one_rank(passed); i++) {
        const char *before = "";
        begin_transfer(m, part, body->params.at[i], out);
        for (int k = 0; k < ranks; k++) {
            const int rank = runs_to_last_rank(loop) ? k : ranks - 1 - k;
            if (!is_on(passed, rank))
                continue;
            fprintf(out, "%s%d", before, stage_at(m, parts, rank, part->chunk));
            before = " -> ";
        }
    }
}

/* What the chunk gets of the one before it: that of the next number, in backward actions. */
static void write_sent(Module *m, const MicroParts *parts, const StagePart *part, FILE *out)
{
    const int before = part->chunk + (part->kind == FORWARD_ACTION ? -1 : 1);
    const Func *f = find_func(m, part->call->attrs.callee);
    for (const Op *op = f->first; op; op = op->next) {
        if (!is_send(op) || before < 0 || before >= parts->chunks)
            continue;
        const RankSet from = arg(op, 0)->type.on, to = result(op)->type.on;
        begin_transfer(m, part, arg(op, 0), out);
        fprintf(out, "%d -> %d", stage_at(m, parts, __builtin_ctzll(from.at), before),
                stage_at(m, parts, __builtin_ctzll(to.at), part->chunk));
    }
}

static void write_pipeline(Module *m, const Op *loop, const MicroParts *parts, FILE *out)
{
    const char *axis = m->axis[m->kind_axis];
    fprintf(out, "  pipeline %s {\n    schedule %s, micros %d", axis, ActionOrder_words[loop->attrs.stages],
            micros_of_loop(loop));
    for (int rank = 0; rank < count_kinds(m); rank++) {
        fprintf(out, "\n    %s=%d", axis, rank);
        for (int chunk = 0; chunk < parts->chunks; chunk++)
            write_stage(m, parts, rank, chunk, out);
        write_params(m, rank, out);
    }
    for (int i = 0; i < parts->count; i++) {
        const StagePart *part = &parts->part[i];
        write_sent(m, parts, part, out);
        for (int k = 0; k < part->nloops; k++)
            write_carried(m, parts, part, part->loop[k], out);
    }
    fputs("\n  }\n", out);
}

char *pipeline_text(Module *m)
{
    MicroParts parts;
    const Op *loop = m->kind_axis < 0 ? NULL : scheduled_parts(m, &parts);
    if (!loop)
        return NULL;
    for (int i = 0; i < parts.count; i++)
        if (!parts.part[i].call)
            return NULL;
    char *text = NULL;
    size_t size;
    FILE *out = open_memory(&text, &size);
    write_pipeline(m, loop, &parts, out);
    fclose(out);
    return text;
}

static const char *after_spaces(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

bool verify_pipeline_text(Module *m)
{
    const Loc said = m->pipeline_said;
    m->pipeline_said = (Loc){ 0 }; /* passes change what it is about */
    if (!said.end)
        return true;
    const char *begin = m->diags->source->text, *at = begin + said.begin, *end = begin + said.end;
    char *text = pipeline_text(m);
    const char *wanted = text ? text : "";
    for (;; at++, wanted++) {
        at = after_spaces(at), wanted = after_spaces(wanted);
        if (at >= end || !*wanted || *at != *wanted)
            break;
    }
    const int where = (int)(at - begin);
    const bool same = at >= end && !*wanted;
    static const char help[] = "leave this section out: mpc print writes it again";
    if (!same && !text)
        error_at(m->diags, (Where){ .at = said, .help = help }, "the module has no pipeline that is cut in stages");
    else if (!same)
        error_at(m->diags, (Where){ .at = { where, where + 1 }, .help = help },
                 "the functions of the module have another pipeline: '%.*s' is expected here",
                 (int)strcspn(wanted, "\n"), wanted);
    free(text);
    return same;
}
