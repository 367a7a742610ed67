/* habits.c -- what a word or sign of another language is called here: the remedy in messages about unknown names, and
 * about what the grammar does not have.
 */
#include "habits.h"

#include <ctype.h>
#include <string.h>

typedef struct {
    const char *words, *help; /* words with a space before and after each */
} Habit;

static const Habit functions[] = {
    { " matmul mm bmm einsum linear Linear tensordot ", "dot(x, w, d) is a product, summed over the dim d of both" },
    { " transpose permute swapaxes reshape view flatten squeeze unsqueeze rearrange ",
      "dims have names, so their order never matters: rename(x, a -> b), split(x, d -> (a, b)), merge(x, (a, b) -> "
      "d)" },
    { " embedding Embedding gather index_select take take_along_axis ",
      "table[vocab = tokens] takes the rows of a table, x[d = i] elements of x along d" },
    { " float half double ", "cast(x, f32)" },
    { " int long ", "cast(x, i32)" },
    { " not logical_not ", "m == 0 is 'not m' of a bool" },
    { " and logical_and all ", "a * b is 'and' of two bools" },
    { " or logical_or any ", "maximum(a, b) is 'or' of two bools" },
    { " cat stack ", "concat(d, a, b)" },
    { " arange range ", "iota(d) is 0, 1, ... along d" },
    { " argmax argmin argsort sort ", "chosen = top_k(x, d, 1 -> k)" },
    { " pow power ", "a ^ b" },
    { " clamp clip ", "minimum(maximum(x, low), high)" },
    { " masked_fill select cond ", "where(mask, a, b)" },
    { " var std variance ", "mean(square(x - mean(x, d)), d) is the variance" },
    { " norm normalize LayerNorm RMSNorm ", "layernorm(x, d), rmsnorm(x, d)" },
    { " zeros zeros_like full ones_like ", "h : [batch, hidden] = 0 has one number in all elements" },
    { " conv1d conv2d Conv1d Conv2d ", "conv(x, w, row -> (y, ky), ...)" },
    { " detach no_grad ", "stop_gradient(x)" },
    { " roll pad ", "shift(x, d, 1)" },
    { " tril triu ", "iota(key) <= iota(seq) is a mask; attend has causal = true" },
    { " scaled_dot_product_attention attention sdpa ", "attend(q, k, v, s, h)" },
    { " rand randn uniform normal ", "random(d, ...)" },
    { " expand expand_as tile ", "broadcast(x, d)" },
    { " nll_loss CrossEntropyLoss ce_loss ", "cross_entropy(x, labels, d)" },
    { " leaky_relu elu ", "where(x > 0, x, 0.01 * x)" },
    { " swish ", "silu(x)" },
    { " len size shape numel ", "the name of a dim is its size" },
};

static const Habit reductions[] = {
    { " max ", "max(x, d) is over a dim; maximum(a, b) is the larger of two" },
    { " min ", "min(x, d) is over a dim; minimum(a, b) is the smaller of two" },
};

static const Habit names[] = {
    { " True ", "did you mean 'true'?" },
    { " False ", "did you mean 'false'?" },
    { " None null ", "leave it out" },
};

static const Habit settings[] = {
    { " lr learning_rate weight_decay momentum betas beta1 beta2 eps ",
      "an argument of the optimizer: adamw(lr = 6e-4)" },
    { " warmup warmup_steps min_lr lr_scheduler ", "an argument of the schedule: cosine(warmup = 700, steps = 18000)" },
    { " steps max_steps num_steps epochs num_epochs ",
      "the trainer's option --steps says how long it runs, and schedule = cosine(steps = 18000) how the rate falls" },
    { " batch_size global_batch_size ", "did you mean 'batch'?" },
    { " micro_batch_size gradient_accumulation_steps accumulation ", "did you mean 'microbatch'?" },
    { " grad_clip gradient_clip max_norm max_grad_norm clip_norm ", "did you mean 'clip'?" },
    { " dtype bf16 fp16 amp mixed_precision ", "did you mean 'precision'?" },
    { " loss ", "loss is a statement of the model" },
    { " parallel mesh zero recompute ", "a line of parallel { ... }" },
};

/* Statements of other languages, by their first word. */
static const Habit statements[] = {
    { " for while ", "repeat N { ... } has N copies of its body, and scan d { ... } runs it at each place along d" },
    { " if elif switch ", "where(c, a, b) chooses for each element, if(c, a, b) by numbers known at compile time" },
    { " def fn func function class ", "block name(x: [batch, seq, embed]) { ... return y }" },
    { " import from include ", "a file is complete: it imports nothing" },
    { " let var ", "x = ..." },
};

/* Statements here that have no sign of equality. */
static const Habit stated[] = {
    { " loss ", "loss is a statement: write 'loss mean(x)'" },
    { " return ", "return is a statement: write 'return y'" },
    { " zero ", "zero is a statement: write 'zero 1 over dp'" },
    { " recompute ", "recompute is a statement: write 'recompute full'" },
    { " mesh ", "mesh is a statement: write 'mesh dp = 2'" },
    { " pipeline ", "pipeline is a statement: write 'pipeline h over pp'" },
};

static const Habit signs[] = {
    { " @ ", "dot(x, w, d) is a product, summed over the dim d of both" },
    { " . ", "a function stands before its argument: sum(x, d)" },
    { " ; ", "a statement ends with its line" },
    { " & ", "a * b is 'and' of two bools" },
    { " | ", "maximum(a, b) is 'or' of two bools" },
    { " ! ", "m == 0 is 'not m' of a bool" },
    { " ? ", "where(c, a, b) chooses for each element, if(c, a, b) by numbers known at compile time" },
    { " ' ", "a text stands in double quotes" },
    { " \\ ", "lines may break inside ( ) and [ ]" },
};

#define FIND(table, word, length) find(table, sizeof table / sizeof table[0], word, length)

static const char *find(const Habit *table, size_t n, const char *word, int length)
{
    for (size_t i = 0; i < n && length > 0; i++)
        for (const char *at = table[i].words; (at = strchr(at, ' ')) && at[1]; at++)
            if (strncmp(at + 1, word, (size_t)length) == 0 && at[length + 1] == ' ')
                return table[i].help;
    return NULL;
}

const char *function_habit(const char *name) { return FIND(functions, name, (int)strlen(name)); }
const char *reduction_habit(const char *name) { return FIND(reductions, name, (int)strlen(name)); }
const char *name_habit(const char *name) { return FIND(names, name, (int)strlen(name)); }
const char *setting_habit(const char *name) { return FIND(settings, name, (int)strlen(name)); }

const char *sign_habit(const char *text)
{
    if (text[0] == '.' && isdigit((unsigned char)text[1]))
        return "a digit stands before the point: 0.5";
    return FIND(signs, text, 1);
}

/* --- Where the grammar found something else ------------------------------------------------- */

static int word_length(const char *text)
{
    int n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

static int skip_blanks(const char *text, int at)
{
    while (text[at] == ' ' || text[at] == '\t')
        at++;
    return at;
}

static int before_blanks(const char *text, int at)
{
    while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t'))
        at--;
    return at;
}

static int line_start(const char *text, int at)
{
    while (at > 0 && text[at - 1] != '\n')
        at--;
    return skip_blanks(text, at);
}

/* x[0] and x[:, 0], or the type [embed, 8] */
static const char *bracket_habit(const char *text, int at)
{
    int open = before_blanks(text, at);
    if (open == 0 || !strchr("[,", text[open - 1]) || (!isdigit((unsigned char)text[at]) && text[at] != ':'))
        return NULL;
    while (open > 0 && text[open - 1] != '[' && text[open - 1] != '\n')
        open--;
    if (open == 0 || text[open - 1] != '[')
        return NULL;
    const int before = before_blanks(text, open - 1);
    const bool is_type =
        before > 0 && (text[before - 1] == ':' || (before > 2 && !memcmp(text + before - 3, "f32", 3)) ||
                       (before > 2 && !memcmp(text + before - 3, "i32", 3)));
    if (is_type && text[at] != ':')
        return "a dim has a name: with `dim d = 8` in the file, [d]";
    return is_type ? NULL : "x[d = 0] is the first element along d, x[d = 0 : 2 -> e] the first two";
}

static const char *operator_habit(const char *text, int at)
{
    const char here = text[at], before = at > 0 ? text[at - 1] : ' ';
    if (!here)
        return NULL;
    if (here == '*' && before == '*')
        return "a ^ b is a power";
    if (here == '/' && (before == '/' || text[at + 1] == '*' || text[at + 1] == '/'))
        return "a comment begins with #";
    if (strchr("+-*/", here) && text[at + 1] == '=')
        return "x = x + y: the value is computed anew";
    if (here == '=' && text[at + 1] == '=')
        return "'==' compares; an assignment is x = y";
    if (here == '[' && before != ']' && !isalnum((unsigned char)before))
        return "there are no lists: tensors are arguments one by one";
    return NULL;
}

bool brace_below(const char *text, int at) { return text[at] == '\n' && text[skip_blanks(text, at + 1)] == '{'; }

/* The end of the line, or of an argument, where more is needed. */
static const char *missing_habit(const char *text, int at, const char *first, int length)
{
    if (brace_below(text, at))
        return "the '{' stands at the end of this line";
    if (text[at] == '\n' && length == 5 && (!strncmp(first, "param", 5) || !strncmp(first, "state", 5)))
        return "how it begins: = zeros, ones, normal(std), uniform(low, high) or constant(c)";
    if (strchr("),", text[at]) && text[at] && length == 5 && !strncmp(first, "block", 5))
        return "an argument has a type, x: [batch, seq, embed], or is a number, n: const";
    return NULL;
}

const char *syntax_habit(const char *text, int at)
{
    const char *sign = operator_habit(text, at), *help = sign ? sign : bracket_habit(text, at);
    const int start = line_start(text, at), length = word_length(text + start), here = word_length(text + at);
    const int after = skip_blanks(text, start + length);
    const bool is_assigned = text[after] == '=' && text[after + 1] != '=';
    help = help ? help : missing_habit(text, at, text + start, length);
    if (!help && after == at && is_assigned)
        help = FIND(stated, text + start, length);
    if (!help && !is_assigned && start != at)
        help = FIND(statements, text + start, length);
    if (!help && (!strncmp(text + at, "if", 2) || !strncmp(text + at, "else", 4)) && (here == 2 || here == 4))
        help = FIND(signs, "?", 1);
    if (!help && (!strncmp(text + at, "and", 3) || !strncmp(text + at, "or", 2)))
        help = FIND(functions, text + at, here);
    if (!help && here == 2 && !strncmp(text + at, "in", 2) && !strncmp(text + start, "repeat", 6))
        help = "repeat N as i { ... }";
    if (!help && here == 3 && !strncmp(text + at, "dim", 3) && text[skip_blanks(text, at + 3)] == '=')
        help = "a dim has no keyword: softmax(x, embed)";
    if (!help && text[at] == ':' && text[skip_blanks(text, at + 1)] == '\n')
        help = "a body stands in { }";
    return help;
}
