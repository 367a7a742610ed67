/* lsp.h -- mpc lsp, a language server: documents, their analysis, and the requests that it answers.
 *
 *   lsp.c          the command: the life of a session, and which function answers which method
 *   wire.c         messages;  text.c  lines, positions, changes
 *   document.c     what editors have open;  analysis.c  what mpc says of a text
 *   resolve.c, names.c  what each name refers to;  builtin_table.c  the built-in functions;  pages.c  rows of docs/
 *   navigate.c     definition, references, rename, symbols;  hover.c;  complete.c, place.c;  tokens.c;  actions.c;
 *   mir.c          answers about dumps of the IR
 *   hints.c         types and messages of lines;  layout.c, worker.c  a model on its mesh
 *
 * One process answers all requests in order.  mpc's frontend keeps no state between runs, so a text is analysed in the
 * server itself, when a request needs it or no message is waiting.
 */
#ifndef MPC_LSP_H
#define MPC_LSP_H

#include "driver.h"
#include "names.h"
#include "text.h"
#include "wire.h"

#include <sys/types.h>

typedef struct Layout Layout; /* see layout.h */

/* --- Analysis ------------------------------------------------------------------------------- */

/* A message of mpc about a place. */
typedef struct Note {
    Loc at, also[2];
    bool is_error;
    const char *message, *label, *help; /* the last two may be NULL */
    struct Note *next;
} Note;

/* What mpc says of a text, which it holds a copy of. */
typedef struct {
    Arena arena;
    Run run;         /* its source, options */
    const Ast *file; /* without the lines that have syntax errors */
    bool is_whole;   /* there are none */
    Note *notes;     /* in their order */
    Module *module;  /* of a dump without errors; else NULL */
    Facts facts;
    NameTable names;
    int64_t ranks;        /* of its mesh; 0: there are errors */
    const Layout *layout; /* NULL: not known, or not looked for */
    bool has_layout;      /* it was looked for */
} Analysis;

Analysis *analyse(const Options *options, const char *path, const char *text, int length);
void free_analysis(Analysis *analysis);

/* --- Documents ------------------------------------------------------------------------------ */

typedef struct Document {
    char *uri, *path;
    double version;
    Text text;
    Analysis *analysis; /* of the text; NULL: it has changed since */
    Analysis *complete; /* the last one of a text without errors, but for `analysis`; NULL: none */
    bool is_published;  /* the editor has the notes of this text */
    struct Document *next;
} Document;

/* The process that compiles a layout. */
typedef struct {
    pid_t copy;
    int file; /* from which it is read what it found; -1: there is none */
    char *text;
    size_t length, room;
    Analysis *analysis; /* of the text */
    bool is_late;       /* an answer went without it */
} Worker;

typedef struct {
    const Options *options;
    Document *documents;
    Worker worker;
    bool is_initialized, is_shut_down;
    bool refreshes_hints; /* the editor can be asked to ask for them again */
} Server;

void stop_worker(Worker *worker);

Document *find_document(const Server *server, const char *uri);                  /* NULL */
const Fact *fact_of(const Document *document, const Declaration *named, Loc at); /* also of an earlier text; NULL */
const Analysis *analysis_of(const Server *server, Document *document);
void open_document(Server *server, const cJSON *params); /* these three take what the editor sends */
void change_document(Server *server, const cJSON *params);
void close_document(Server *server, const cJSON *params);
void publish_notes(const Server *server); /* of all documents that have changed */
void free_documents(Server *server);

/* --- Requests: what is to be answered ------------------------------------------------------- */

/* A request about a document; `offset`: the place that it names, if it names one. */
typedef struct {
    Server *server;
    Document *document;
    const Analysis *analysis;
    const cJSON *params;
    int offset;
    Arena *arena;      /* freed after the answer */
    const char *error; /* set by a request that cannot be done: why */
} Request;

/* Each returns the result; NULL: none. */
cJSON *answer_definition(Request *r);
cJSON *answer_references(Request *r);
cJSON *answer_highlights(Request *r);
cJSON *answer_prepare_rename(Request *r);
cJSON *answer_rename(Request *r);
cJSON *answer_symbols(Request *r);
cJSON *answer_formatting(Request *r);
cJSON *answer_hover(Request *r);
cJSON *answer_completion(Request *r);
cJSON *answer_signature(Request *r);
cJSON *answer_tokens(Request *r);
cJSON *answer_actions(Request *r);
cJSON *answer_hints(Request *r);

cJSON *token_legend(void); /* of the numbers in answer_tokens */
cJSON *note_json(Arena *arena, const Document *document, const Note *note);
cJSON *location_json(const Document *document, Loc at);
cJSON *text_edit(const Text *text, Loc loc, const char *bytes);

#endif
