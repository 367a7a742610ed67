/* grammar.y -- the grammar of .mdl; actions only build the tree.
 *
 * One kind of statement for all contexts: contexts are checked afterwards (ast.c), so that an error in the head of a
 * block does not make every line of its body an error.
 */

%require "3.7"
%code requires {
    #include "syntax/build_ast.h"
    typedef void *Scanner;
}
%code provides {
    int  yylex(YYSTYPE *, YYLTYPE *, Reading *, Scanner);
    void yyerror(YYLTYPE *, Reading *, Scanner, const char *);
}

%define api.pure full
%define api.token.prefix {T_}
%define api.location.type {Loc}
%define api.value.type union
%define parse.error custom
%define parse.lac full
%locations %expect 0
%param { Reading *r } { Scanner scanner }

%code {
    #include "syntax/habits.h"

    #include <ctype.h>
    #include <string.h>

    #define YYLLOC_DEFAULT(at, rhs, n)                                             \
        ((at) = (n) ? (Loc){ YYRHSLOC(rhs, 1).begin, YYRHSLOC(rhs, n).end }        \
                    : (Loc){ YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end })

    #define MAKE(kind, loc, ...) make_ast(r, (loc), (Ast){ (kind), __VA_ARGS__ })
}

%token          END 0  "the end of the file"
%token          EOL    "the end of the line"
%token          EXPRESSION "the start"
%token <const char *> NAME "a name"  INTEGER "a whole number"  NUMBER "a number"  STRING "text"
%token <const char *> CONST "'const'"  DIM "'dim'"  PADDED "'padded'"  BLOCK "'block'"  PARAM "'param'"
%token <const char *> NO_DECAY "'no_decay'"  FROZEN "'frozen'"  INPUT "'input'"  MODEL "'model'"  REPEAT "'repeat'"
%token <const char *> RETURN "'return'"  LOSS "'loss'"  TRAIN "'train'"  PARALLEL "'parallel'"  MESH "'mesh'"
%token <const char *> SHARD "'shard'"  OVER "'over'"  ELSE "'else'"  PIPELINE "'pipeline'"  ZERO "'zero'"
%token <const char *> RECOMPUTE "'recompute'"  AS "'as'"  OPTIMIZER "'optimizer'"  STATE "'state'"  UPDATE "'update'"
%token <const char *> GROUP "'group'"  OFFLOAD "'offload'"  SCAN "'scan'"  YIELD "'yield'"  OUTPUT "'output'"
%token          TRUE "'true'"  FALSE "'false'"  ARROW "'->'"  ELLIPSIS "'...'"
%token          LE "'<='"  GE "'>='"  EQ "'=='"  NE "'!='"  '<' "'<'"  '>' "'>'"
%token          '=' "'='"  ',' "','"  ':' "':'"  '(' "'('"  ')' "')'"  '[' "'['"  ']' "']'"  OPEN_BRACE "'{'"  CLOSE_BRACE "'}'"
%token          '+' "'+'"  '-' "'-'"  '*' "'*'"  '/' "'/'"  '%' "'%'"  '^' "'^'"

%nonassoc '<' '>' LE GE EQ NE
%left '+' '-'
%left '*' '/' '%'
%precedence NEGATION
%right '^'
%precedence ALONE  /* a name that no bracket follows */
%precedence '[' AS

%nterm <Ast *> lines line statement last body names name type dims dim expr index call args arguments argument tuple
%nterm <Ast *> over_dims results arg_types arg_type padding init mesh_axes mesh_axis shard_dims shard_dim options option
%nterm <Ast *> folder offload_options budget numbers zero_options pipeline_options over otherwise
%nterm <bool> no_decay frozen
%%

start:
  lines                             { r->file = check_places(r, $lines); }
| EXPRESSION expr ends              { r->expression = $expr; }
| EXPRESSION error EOL
;

ends:
  EOL
| ends EOL
;

/* A statement with an error ends at the end of its line; the next line is parsed normally. */
lines:
  %empty                            { $$ = NULL; }
| lines[list] line                  { $$ = append_ast($list, $line); }
;

line:
  statement EOL                     { $$ = $statement; }
| EOL                               { $$ = NULL; }
| error EOL                         { $$ = NULL; yyerrok; }
;

body:
  OPEN_BRACE lines last CLOSE_BRACE                { $$ = append_ast($lines, $last); }
;

last:
  %empty                            { $$ = NULL; }
| statement                         { $$ = $statement; }
| error                             { $$ = NULL; yyerrok; }
;

statement:
  CONST NAME '=' expr               { $$ = MAKE(A_CONST, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
| DIM NAME padding                  { $$ = MAKE(A_DIM, @$, .name_loc = @NAME, .name = $NAME, .type = $padding); }
| DIM NAME '=' expr padding         { $$ = MAKE(A_DIM, @$, .name_loc = @NAME, .name = $NAME, .child = $expr,
                                                .type = $padding); }
| BLOCK NAME over_dims '(' arg_types ')' body
                                    { $$ = MAKE(A_BLOCK, @$, .name_loc = @NAME, .name = $NAME, .dims = $over_dims,
                                                .child = $arg_types, .body = $body); }
| MODEL NAME body                   { $$ = MAKE(A_MODEL, @$, .name_loc = @NAME, .name = $NAME, .body = $body); }
| TRAIN body                        { $$ = MAKE(A_TRAIN, @$, .name_loc = @TRAIN, .name = "train", .body = $body); }
| PARALLEL body                     { $$ = MAKE(A_PARALLEL, @$, .name_loc = @PARALLEL, .name = "parallel",
                                                .body = $body); }
| PARAM names ':' type '=' expr no_decay frozen
                                    { $$ = MAKE(A_PARAM, @$, .name_loc = @names, .child = $names, .type = $type,
                                                .init = $expr, .no_decay = $no_decay, .frozen = $frozen); }
| STATE names ':' type '=' expr     { $$ = MAKE(A_PARAM, @$, .name_loc = @names, .child = $names, .type = $type,
                                                .init = $expr, .is_state = true); }
| UPDATE NAME '=' expr              { $$ = MAKE(A_UPDATE, @$, .name_loc = @NAME, .name = $NAME, .init = $expr); }
| INPUT NAME ':' type init          { $$ = MAKE(A_INPUT, @$, .name_loc = @NAME, .name = $NAME, .type = $type,
                                                .init = $init); }
| names '=' expr                    { $$ = MAKE(A_ASSIGN, @$, .name_loc = @names, .child = $names, .init = $expr); }
| names ':' type '=' expr           { $$ = MAKE(A_ASSIGN, @$, .name_loc = @names, .child = $names, .type = $type,
                                                .init = $expr); }
| REPEAT expr body                  { $$ = take_number(MAKE(A_REPEAT, @$, .name_loc = @REPEAT, .name = "repeat",
                                                            .init = $expr, .body = $body)); }
| REPEAT expr AS NAME body          { $$ = MAKE(A_REPEAT, @$, .name_loc = @REPEAT, .name = "repeat", .init = $expr,
                                                .as = $NAME, .as_loc = @NAME, .body = $body); }
| SCAN NAME zero_options body       { $$ = MAKE(A_SCAN, @$, .name_loc = @NAME, .name = $NAME, .type = $zero_options,
                                                 .body = $body); }
| YIELD NAME '=' expr               { $$ = MAKE(A_YIELD, @$, .name_loc = @NAME, .name = $NAME, .init = $expr); }
| YIELD NAME ':' type '=' expr      { $$ = MAKE(A_YIELD, @$, .name_loc = @NAME, .name = $NAME, .type = $type,
                                                .init = $expr); }
| RETURN results                    { $$ = MAKE(A_RETURN, @$, .name_loc = @RETURN, .name = "return",
                                                .child = $results); }
| LOSS expr                         { $$ = MAKE(A_LOSS, @$, .name_loc = @LOSS, .name = "loss", .child = $expr); }
| OUTPUT name init                  { $$ = output_of(r, @$, $name, NULL, $init); }
| OUTPUT name ':' type '=' expr     { $$ = output_of(r, @$, $name, $type, $expr); }
| MESH mesh_axes                    { $$ = MAKE(A_MESH, @$, .name_loc = @MESH, .name = "mesh", .child = $mesh_axes); }
| SHARD shard_dims OVER NAME otherwise zero_options
                                    { $$ = MAKE(A_SHARD, @$, .name_loc = @NAME, .name = $NAME, .child = $shard_dims,
                                                .init = $otherwise, .type = $zero_options); }
| PIPELINE names OVER name pipeline_options
                                    { $$ = MAKE(A_PIPELINE, @$, .name_loc = @names, .child = $names, .init = $name,
                                                .type = $pipeline_options); }
| ZERO INTEGER over zero_options    { $$ = MAKE(A_ZERO, @$, .name_loc = @INTEGER, .name = $INTEGER,
                                                .number = number_of(r, $INTEGER), .init = $over,
                                                .child = $zero_options); }
| RECOMPUTE expr                    { $$ = MAKE(A_RECOMPUTE, @$, .name_loc = @expr, .child = $expr); }
| OFFLOAD names NAME[to] NAME[tier] folder offload_options
                                    { $$ = MAKE(A_OFFLOAD, @$, .name_loc = @tier, .name = $tier, .as = $to, .as_loc = @to,
                                                .child = $names, .init = $folder, .type = $offload_options); }
| OFFLOAD names NAME[tier]          { $$ = MAKE(A_OFFLOAD, @$, .name_loc = @tier, .name = $tier, .child = $names); } /* an error: see offload.c */
| OPTIMIZER NAME '(' arguments ')' body
                                    { $$ = MAKE(A_OPTIMIZER, @$, .name_loc = @NAME, .name = $NAME, .child = $arguments,
                                                .body = $body); }
| STATE names '=' expr              { $$ = MAKE(A_STATE, @$, .name_loc = @names, .child = $names, .init = $expr); }
| STATE names '=' NAME[mean] NAME[of] NAME[online] '(' expr ')'
                                    { $$ = MAKE(A_MEAN, @$, .name_loc = @online, .name = $online, .child = $names,
                                                .as = arena_text(r->arena, "%s %s", $mean, $of), .as_loc = @mean,
                                                .init = $expr); }
| UPDATE expr                       { $$ = MAKE(A_UPDATED, @$, .name_loc = @UPDATE, .child = $expr); }
| GROUP STRING '(' arguments ')'    { $$ = MAKE(A_GROUP, @$, .name_loc = @STRING, .name = $STRING, .child =
                                                MAKE(A_CALL, @$, .name_loc = @arguments, .name = "", .child = $arguments)); }
| GROUP STRING call                 { $$ = MAKE(A_GROUP, @$, .name_loc = @STRING, .name = $STRING, .child = $call); }
;

padding:
  %empty                            { $$ = NULL; }
| PADDED expr                       { $$ = $expr; }
;

no_decay:
  %empty                            { $$ = false; }
| NO_DECAY                          { $$ = true; }
;

frozen:
  %empty                            { $$ = false; }
| FROZEN                            { $$ = true; }
;

init:
  %empty                            { $$ = NULL; }
| '=' expr                          { $$ = $expr; }
;

name:
  NAME                              { $$ = MAKE(A_NAME, @$, .name_loc = @$, .name = $NAME); }
;

folder:
  %empty                            { $$ = NULL; }
| STRING                            { $$ = MAKE(A_STRING, @$, .name = $STRING); }
;

offload_options:
  %empty                            { $$ = NULL; }
| NAME                              { $$ = MAKE(A_NAME, @$, .name_loc = @NAME, .name = $NAME); }
| budget
| budget NAME                       { $$ = $budget; $$->next = MAKE(A_NAME, @NAME, .name_loc = @NAME, .name = $NAME); }
| budget[a] budget[b]               { $$ = $a; $$->next = $b; }
;

budget:
  NAME expr                         { $$ = MAKE(A_KEYWORD, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
;

names:
  name                              { $$ = $name; }
| names[list] ',' name              { $$ = append_ast($list, $name); }
;

over_dims:
  %empty                            { $$ = NULL; }
| '[' names ']'                     { $$ = $names; }
;

results:
  expr                              { $$ = $expr; }
| results[list] ',' expr            { $$ = append_ast($list, $expr); }
;

arg_types:
  %empty                            { $$ = NULL; }
| arg_type                          { $$ = $arg_type; }
| arg_types[list] ',' arg_type      { $$ = append_ast($list, $arg_type); }
;

arg_type:
  NAME ':' type                     { $$ = MAKE(A_ARG, @$, .name_loc = @NAME, .name = $NAME, .type = $type); }
| NAME ':' CONST                    { $$ = MAKE(A_ARG, @$, .name_loc = @NAME, .name = $NAME); }
;

type:
  '[' dims ']'                      { $$ = type_of(r, @$, NULL, $dims); }
| NAME '[' dims ']'                 { $$ = type_of(r, @$, $NAME, $dims); $$->name_loc = @NAME; }
;

dims:
  %empty                            { $$ = NULL; }
| dim                               { $$ = $dim; }
| dims[list] ',' dim                { $$ = append_ast($list, $dim); }
;

dim:
  name                              { $$ = $name; }
| ELLIPSIS                          { $$ = MAKE(A_NAME, @$, .name_loc = @$, .name = "..."); }
;

expr:
  INTEGER                           { $$ = MAKE(A_NUMBER, @$, .name = $INTEGER, .number = number_of(r, $INTEGER),
                                                .is_integer = true); }
| NUMBER                            { $$ = MAKE(A_NUMBER, @$, .name = $NUMBER, .number = number_of(r, $NUMBER)); }
| PARAM                             { $$ = MAKE(A_NAME, @$, .name_loc = @$, .name = $PARAM); }
| STRING                            { $$ = MAKE(A_STRING, @$, .name = $STRING); }
| TRUE                              { $$ = MAKE(A_BOOL, @$, .name = "true", .number = 1); }
| FALSE                             { $$ = MAKE(A_BOOL, @$, .name = "false"); }
| NAME %prec ALONE                  { $$ = MAKE(A_NAME, @$, .name_loc = @$, .name = $NAME); }
| call %prec ALONE                  { $$ = $call; }
| call AS NAME                      { $$ = $call; $$->as = $NAME; $$->as_loc = @NAME; $$->loc = @$; }
| FROZEN call %prec ALONE           { $$ = $call; $$->frozen = true; $$->loc = @$; }
| FROZEN call AS NAME               { $$ = $call; $$->frozen = true; $$->as = $NAME; $$->as_loc = @NAME; $$->loc = @$; }
| NAME[of] '[' NAME[dim] '=' index ']'
                                    { Ast *x = MAKE(A_NAME, @of, .name_loc = @of, .name = $of);
                                      $$ = MAKE(A_INDEX, @$, .name_loc = @dim, .name = $dim,
                                                .child = append_ast(x, $index)); }
| expr[x] '[' NAME '=' index ']'    { $$ = MAKE(A_INDEX, @$, .name_loc = @NAME, .name = $NAME,
                                                .child = append_ast($x, $index)); }
| '-' expr[a] %prec NEGATION        { $$ = MAKE(A_UNARY, @$, .name_loc = @1, .name = "-", .child = $a); }
| expr[a] '+' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "+", .child = append_ast($a, $b)); }
| expr[a] '-' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "-", .child = append_ast($a, $b)); }
| expr[a] '*' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "*", .child = append_ast($a, $b)); }
| expr[a] '/' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "/", .child = append_ast($a, $b)); }
| expr[a] '%' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "%", .child = append_ast($a, $b)); }
| expr[a] '^' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "^", .child = append_ast($a, $b)); }
| expr[a] '<' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "<", .child = append_ast($a, $b)); }
| expr[a] '>' expr[b]               { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = ">", .child = append_ast($a, $b)); }
| expr[a] LE expr[b]                { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "<=", .child = append_ast($a, $b)); }
| expr[a] GE expr[b]                { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = ">=", .child = append_ast($a, $b)); }
| expr[a] EQ expr[b]                { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "==", .child = append_ast($a, $b)); }
| expr[a] NE expr[b]                { $$ = MAKE(A_BINARY, @$, .name_loc = @2, .name = "!=", .child = append_ast($a, $b)); }
| '(' expr[inner] ')'               { $$ = $inner; $$->parenthesised = true; }
;

index:
  expr                              { $$ = $expr; }
| expr[from] ':' expr[to]           { $$ = MAKE(A_RANGE, @$, .name_loc = @2, .child = append_ast($from, $to)); }
| expr[from] ':' expr[to] ARROW NAME
                                    { $$ = MAKE(A_RANGE, @$, .name_loc = @NAME, .name = $NAME,
                                                .child = append_ast($from, $to)); }
;

call:
  NAME '(' arguments ')'            { $$ = MAKE(A_CALL, @$, .name_loc = @NAME, .name = $NAME, .child = $arguments); }
| NAME '[' names ']' '(' arguments ')'
                                    { $$ = MAKE(A_CALL, @$, .name_loc = @NAME, .name = $NAME, .dims = $names,
                                                .child = $arguments); }
;

arguments:
  %empty                            { $$ = NULL; }
| args                              { $$ = $args; }
;

args:
  argument                          { $$ = $argument; }
| args[list] ',' argument           { $$ = append_ast($list, $argument); }
;

argument:
  expr                              { $$ = $expr; }
| NAME '=' expr                     { $$ = MAKE(A_KEYWORD, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
| expr ARROW NAME                   { $$ = MAKE(A_ARROW, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
| expr ARROW tuple                  { $$ = MAKE(A_PARTS, @$, .name_loc = @tuple, .init = $expr, .child = $tuple); }
| tuple ARROW NAME                  { $$ = MAKE(A_JOIN, @$, .name_loc = @NAME, .name = $NAME, .child = $tuple); }
;

tuple:
  '(' name ',' names ')'            { $$ = append_ast($name, $names); }
;

mesh_axes:
  mesh_axis                         { $$ = $mesh_axis; }
| mesh_axes[list] ',' mesh_axis     { $$ = append_ast($list, $mesh_axis); }
;

mesh_axis:
  NAME '=' expr                     { $$ = MAKE(A_KEYWORD, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
;

shard_dims:
  shard_dim                         { $$ = $shard_dim; }
| shard_dims[list] ',' shard_dim    { $$ = append_ast($list, $shard_dim); }
;

shard_dim:
  name                              { $$ = $name; }
| '(' name[g] ',' name[h] ')'       { $$ = MAKE(A_PAIR, @$, .name_loc = @$, .child = append_ast($g, $h)); }
;

otherwise:
  %empty                            { $$ = NULL; }
| ELSE name                         { $$ = $name; }
;

over:
  %empty                            { $$ = NULL; }
| OVER names                        { $$ = $names; }
;

pipeline_options:
  %empty                            { $$ = NULL; }
| ',' options                       { $$ = $options; }
;

zero_options:
  %empty                            { $$ = NULL; }
| '(' options ')'                   { $$ = $options; }
;

options:
  option                            { $$ = $option; }
| options[list] ',' option          { $$ = append_ast($list, $option); }
;

option:
  name                              { $$ = $name; }
| NAME '=' expr                     { $$ = MAKE(A_KEYWORD, @$, .name_loc = @NAME, .name = $NAME, .child = $expr); }
| NAME '=' '[' numbers ']'          { $$ = MAKE(A_KEYWORD, @$, .name_loc = @NAME, .name = $NAME,
                                                .child = MAKE(A_LIST, @$, .child = $numbers)); }
;

numbers:
  expr                              { $$ = $expr; }
| numbers[list] ',' expr            { $$ = append_ast($list, $expr); }
;

%%

/* --- Messages ------------------------------------------------------------------------------ */

/* A group of tokens, reported under one name if all of them are expected; `sign` is one of them. */
typedef struct {
    const char *noun, *sign, *members;
} Group;

static const Group groups[] = {
    { "a statement", "'const'",
      "'const' 'dim' 'block' 'param' 'state' 'update' 'input' 'model' 'repeat' 'scan' 'yield' 'return' 'loss' 'output' 'train' 'parallel' 'mesh' 'shard' "
      "'pipeline' 'zero' 'recompute' 'offload' 'optimizer' 'group' a name the end of the line the end of the file the start" },
    { "an expression", "text", "text a name a whole number a number 'true' 'false' 'param' 'frozen' '(' '-'" },
    { "an operator", "'+'", "'+' '-' '*' '/' '%' '^' '<' '>' '<=' '>=' '==' '!=' '[' '(' 'as' '->'" },
};

enum { OPERATORS = 2, NGROUPS = sizeof groups / sizeof *groups, MOST = 5 };

static const char *found_text(const Reading *r, Loc at, yysymbol_kind_t found)
{
    if (r->ended || found == YYSYMBOL_YYEOF)
        return r->wants_expression ? "the end" : "the end of the file";
    if (r->source->text[at.begin] == '\n')
        return "the end of the line";
    return arena_text(r->arena, "'%.*s'", at.end - at.begin, r->source->text + at.begin);
}

static bool in_group(const Group *group, const yysymbol_kind_t *expected, int n, yysymbol_kind_t kind)
{
    bool is_meant = false;
    for (int i = 0; i < n; i++)
        is_meant |= strcmp(yysymbol_name(expected[i]), group->sign) == 0;
    return is_meant && strstr(group->members, yysymbol_name(kind));
}

/* The expected groups and single tokens; returns their number, which may exceed MOST. */
static int list_expected(const yysymbol_kind_t *expected, int n, const char *listed[MOST])
{
    bool is_told[YYNTOKENS] = { false };
    int count = 0;
    for (int g = 0; g < NGROUPS; g++)
        for (int i = 0, first = 1; i < n; i++)
            if (!is_told[i] && in_group(&groups[g], expected, n, expected[i])) {
                if (first)
                    listed[count++] = groups[g].noun;
                is_told[i] = true, first = 0;
            }
    for (int i = 0; i < n; i++)
        if (!is_told[i]) {
            if (count < MOST)
                listed[count] = yysymbol_name(expected[i]);
            count++;
        }
    return count;
}

static const char *expected_text(Reading *r, const yysymbol_kind_t *expected, int n)
{
    const char *listed[MOST], *text = "";
    int count = list_expected(expected, n, listed);
    for (int i = 0; i < count && count <= MOST; i++)
        text = arena_text(r->arena, "%s%s%s", text, i == 0 ? "expected " : i + 1 < count ? ", " : " or ", listed[i]);
    return text;
}

static bool has(const yysymbol_kind_t *expected, int n, yysymbol_kind_t kind)
{
    for (int i = 0; i < n; i++)
        if (expected[i] == kind)
            return true;
    return false;
}

/* x[seq] + 1 */
static bool follows_dims(const char *text, int at, const yysymbol_kind_t *expected, int n)
{
    while (at > 0 && text[at - 1] == ' ')
        at--;
    return at > 0 && text[at - 1] == ']' && n == 1 && strcmp(yysymbol_name(expected[0]), "'('") == 0;
}

/* The likely mistake, as far as two tokens show it. */
static const char *help_text(Reading *r, Loc at, yysymbol_kind_t found, const yysymbol_kind_t *expected, int n)
{
    const char *name = yysymbol_name(found);
    if (r->forgotten.end > 0)
        return open_help(r, r->forgotten);
    const char *habit = syntax_habit(r->source->text, at.begin);
    if (habit)
        return habit;
    if (name[0] == '\'' && islower((unsigned char)name[1]) && has(expected, n, YYSYMBOL_NAME))
        return arena_text(r->arena, "%s is a keyword and cannot be a name", name);
    if (follows_dims(r->source->text, at.begin, expected, n))
        return "f[d](x) calls a block, x[d = 3] takes an element";
    if (strstr("'<' '>' '<=' '>=' '==' '!='", name) && in_group(&groups[OPERATORS], expected, n, found))
        return "comparisons cannot be chained; use parentheses";
    if (r->nopen > 0 && r->nopen <= MAX_OPEN && r->open[r->nopen - 1].begin < at.begin)
        return open_help(r, r->open[r->nopen - 1]);
    if (r->ended && r->nbraces > 0 && r->nbraces <= MAX_OPEN)
        return open_brace_help(r);
    return NULL;
}

/* Sets the scanner to skip the rest of the line, including braces in it. */
static void begin_recovery(Reading *r, yysymbol_kind_t found)
{
    bool ends_here = found == YYSYMBOL_EOL || (found == YYSYMBOL_CLOSE_BRACE && r->closes);
    r->recovering = !ends_here;
    r->forgotten = (Loc){ 0 };
    if (ends_here)
        r->nopen = 0;
    if (found == YYSYMBOL_OPEN_BRACE) {
        r->nbraces--;
        r->lost++;
        r->lost_here++;
    }
}

static int yyreport_syntax_error(const yypcontext_t *context, Reading *r, Scanner scanner)
{
    (void)scanner;
    yysymbol_kind_t found = yypcontext_token(context);
    Loc at = *yypcontext_location(context);
    yysymbol_kind_t expected[YYNTOKENS];
    int n = yypcontext_expected_tokens(context, expected, YYNTOKENS);
    const char *list = expected_text(r, expected, n);
    const bool is_told = r->told_end || (found == YYSYMBOL_OPEN_BRACE && r->brace_below);
    r->brace_below = has(expected, n, YYSYMBOL_OPEN_BRACE) && brace_below(r->source->text, at.begin);
    if (!is_told)
        error_at(r->diags, (Where){ .at = at, .help = help_text(r, at, found, expected, n) }, "%s%s %s", list,
                 *list ? ", found" : "unexpected", found_text(r, at, found));
    r->told_end = r->ended;
    begin_recovery(r, found);
    return 0;
}

/* Bison calls this only for a stack overflow. */
void yyerror(YYLTYPE *at, Reading *r, Scanner scanner, const char *message)
{
    (void)scanner, (void)message;
    error_at(r->diags, (Where){ .at = *at, .help = "give a part of it a name" }, "nested too deeply");
}
