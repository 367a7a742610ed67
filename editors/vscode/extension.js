// extension.js -- talks with mpc lsp.  It needs nothing but VS Code: no packages, no build.
'use strict';
const { spawn } = require('child_process');
const vscode = require('vscode');

const LANGUAGES = ['mdl', 'mir'];

/** JSON-RPC with a process: messages with a head, over its standard input and output. */
class Connection {
    constructor(command, options, heard, ended) {
        this.next = 1;
        this.waiting = new Map();
        this.bytes = Buffer.alloc(0);
        this.heard = heard;
        this.process = spawn(command, ['lsp', ...options]);
        this.process.on('error', ended);
        this.process.on('exit', code => code && ended(new Error(`it ended with status ${code}`)));
        this.process.stdout.on('data', bytes => this.read(bytes));
        this.process.stdin.on('error', () => {});
    }

    read(bytes) {
        this.bytes = Buffer.concat([this.bytes, bytes]);
        for (;;) {
            const head = this.bytes.indexOf('\r\n\r\n');
            const length = head < 0 ? 0 : Number(/Content-Length: (\d+)/i.exec(this.bytes.toString('latin1', 0, head))[1]);
            if (head < 0 || this.bytes.length < head + 4 + length)
                return;
            const message = JSON.parse(this.bytes.toString('utf8', head + 4, head + 4 + length));
            this.bytes = this.bytes.subarray(head + 4 + length);
            this.take(message);
        }
    }

    take(message) {
        if (message.method) {
            this.heard(message.method, message.params);
            if (message.id !== undefined)
                this.send({ id: message.id, result: null });
            return;
        }
        const answer = this.waiting.get(message.id);
        this.waiting.delete(message.id);
        if (answer && message.error)
            answer.reject(new Error(message.error.message));
        else if (answer)
            answer.resolve(message.result);
    }

    send(message) {
        const text = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }), 'utf8');
        this.process.stdin.write(`Content-Length: ${text.length}\r\n\r\n`);
        this.process.stdin.write(text);
    }

    notify(method, params) { this.send({ method, params }); }

    ask(method, params) {
        const id = this.next++;
        return new Promise((resolve, reject) => {
            this.waiting.set(id, { resolve, reject });
            this.send({ id, method, params });
        });
    }
}

// --- Between the protocol and VS Code: places are the same, UTF-16 from 0 ---

const toRange = r => new vscode.Range(r.start.line, r.start.character, r.end.line, r.end.character);
const toLocation = l => new vscode.Location(vscode.Uri.parse(l.uri), toRange(l.range));
const fromPosition = p => ({ line: p.line, character: p.character });
const fromRange = r => ({ start: fromPosition(r.start), end: fromPosition(r.end) });

function toDiagnostic(d) {
    const severity = d.severity === 1 ? vscode.DiagnosticSeverity.Error : vscode.DiagnosticSeverity.Warning;
    const diagnostic = new vscode.Diagnostic(toRange(d.range), d.message, severity);
    diagnostic.source = d.source;
    diagnostic.relatedInformation = (d.relatedInformation || []).map(
        related => new vscode.DiagnosticRelatedInformation(toLocation(related.location), related.message));
    return diagnostic;
}

function toEdit(changes) {
    const edit = new vscode.WorkspaceEdit();
    for (const [uri, edits] of Object.entries(changes))
        for (const e of edits)
            edit.replace(vscode.Uri.parse(uri), toRange(e.range), e.newText);
    return edit;
}

function toSymbol(s) {
    const symbol = new vscode.DocumentSymbol(s.name, s.detail || '', s.kind - 1, toRange(s.range), toRange(s.selectionRange));
    symbol.children = (s.children || []).map(toSymbol);
    return symbol;
}

function toCompletion(c) {
    const item = new vscode.CompletionItem(c.label, c.kind - 1);
    item.detail = c.detail;
    item.sortText = c.sortText;
    item.range = toRange(c.textEdit.range);
    item.insertText = c.textEdit.newText;
    return item;
}

function toHint(h) {
    const hint = new vscode.InlayHint(new vscode.Position(h.position.line, h.position.character), h.label, h.kind);
    hint.tooltip = h.tooltip;
    hint.paddingLeft = h.paddingLeft;
    return hint;
}

function toSignature(found) {
    const help = new vscode.SignatureHelp();
    help.signatures = found.signatures.map(s => {
        const signature = new vscode.SignatureInformation(s.label);
        signature.parameters = s.parameters.map(p => new vscode.ParameterInformation(p.label));
        return signature;
    });
    help.activeSignature = found.activeSignature;
    help.activeParameter = found.activeParameter;
    return help;
}

function toAction(a) {
    const action = new vscode.CodeAction(a.title, vscode.CodeActionKind.QuickFix);
    action.diagnostics = a.diagnostics.map(toDiagnostic);
    action.edit = toEdit(a.edit.changes);
    action.isPreferred = a.isPreferred;
    return action;
}

// --- The server ---

let connection;

const at = (document, position) => ({ textDocument: { uri: document.uri.toString() }, position: fromPosition(position) });
const of = document => ({ textDocument: { uri: document.uri.toString() } });
const ask = (method, params) => connection.ask(`textDocument/${method}`, params);
const listed = async (answer, convert) => ((await answer) || []).map(convert);

/** A provider for each request that mpc lsp answers. */
function register(legend, refreshed) {
    const l = vscode.languages;
    const tokens = new vscode.SemanticTokensLegend(legend.tokenTypes, legend.tokenModifiers);
    return [
        l.registerHoverProvider(LANGUAGES, { provideHover: async (d, p) => {
            const found = await ask('hover', at(d, p));
            return found && new vscode.Hover(new vscode.MarkdownString(found.contents.value), toRange(found.range));
        } }),
        l.registerDefinitionProvider(LANGUAGES, { provideDefinition: async (d, p) => {
            const found = await ask('definition', at(d, p));
            return found && toLocation(found);
        } }),
        l.registerReferenceProvider(LANGUAGES, { provideReferences: (d, p, context) =>
            listed(ask('references', { ...at(d, p), context }), toLocation) }),
        l.registerDocumentHighlightProvider(LANGUAGES, { provideDocumentHighlights: (d, p) =>
            listed(ask('documentHighlight', at(d, p)), h => new vscode.DocumentHighlight(toRange(h.range), h.kind - 1)) }),
        l.registerRenameProvider(LANGUAGES, {
            prepareRename: async (d, p) => {
                const found = await ask('prepareRename', at(d, p));
                if (!found)
                    throw new Error('There is no name of this file.');
                return toRange(found);
            },
            provideRenameEdits: async (d, p, newName) => toEdit((await ask('rename', { ...at(d, p), newName })).changes)
        }),
        l.registerDocumentSymbolProvider(LANGUAGES, { provideDocumentSymbols: d =>
            listed(ask('documentSymbol', of(d)), toSymbol) }),
        l.registerDocumentFormattingEditProvider(LANGUAGES, { provideDocumentFormattingEdits: (d, options) =>
            listed(ask('formatting', { ...of(d), options }), e => new vscode.TextEdit(toRange(e.range), e.newText)) }),
        l.registerCompletionItemProvider(LANGUAGES, { provideCompletionItems: (d, p) =>
            listed(ask('completion', at(d, p)), toCompletion) }, '[', '('),
        l.registerSignatureHelpProvider(LANGUAGES, { provideSignatureHelp: async (d, p) => {
            const found = await ask('signatureHelp', at(d, p));
            return found && toSignature(found);
        } }, '(', ','),
        l.registerCodeActionsProvider(LANGUAGES, { provideCodeActions: (d, range) =>
            listed(ask('codeAction', { ...of(d), range: fromRange(range), context: { diagnostics: [] } }), toAction) }),
        l.registerInlayHintsProvider(LANGUAGES, { onDidChangeInlayHints: refreshed.event, provideInlayHints: (d, range) =>
            listed(ask('inlayHint', { ...of(d), range: fromRange(range) }), toHint) }),
        l.registerDocumentSemanticTokensProvider(LANGUAGES, { provideDocumentSemanticTokens: async d => {
            const found = await ask('semanticTokens/full', of(d));
            return found && new vscode.SemanticTokens(Uint32Array.from(found.data));
        } }, tokens)
    ];
}

/** Documents that are open, and their changes. */
function follow() {
    const isOurs = document => LANGUAGES.includes(document.languageId);
    const open = document => isOurs(document) && connection.notify('textDocument/didOpen', {
        textDocument: { uri: document.uri.toString(), languageId: document.languageId, version: document.version, text: document.getText() }
    });
    vscode.workspace.textDocuments.forEach(open);
    return [
        vscode.workspace.onDidOpenTextDocument(open),
        vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => isOurs(document) && contentChanges.length &&
            connection.notify('textDocument/didChange', {
                textDocument: { uri: document.uri.toString(), version: document.version },
                contentChanges: contentChanges.map(c => ({ range: fromRange(c.range), text: c.text }))
            })),
        vscode.workspace.onDidCloseTextDocument(document => isOurs(document) &&
            connection.notify('textDocument/didClose', of(document)))
    ];
}

async function activate(context) {
    const settings = vscode.workspace.getConfiguration('mpc');
    const diagnostics = vscode.languages.createDiagnosticCollection('mpc');
    const refreshed = new vscode.EventEmitter();
    const heard = (method, params) => {
        if (method === 'textDocument/publishDiagnostics')
            diagnostics.set(vscode.Uri.parse(params.uri), params.diagnostics.map(toDiagnostic));
        else if (method === 'workspace/inlayHint/refresh')
            refreshed.fire();
    };
    connection = new Connection(settings.get('command'), settings.get('options'), heard,
        error => vscode.window.showErrorMessage(`mpc lsp: ${error.message}`));
    context.subscriptions.push(diagnostics, refreshed);
    const capabilities = { workspace: { inlayHint: { refreshSupport: true } } };
    const server = await connection.ask('initialize', { processId: process.pid, rootUri: null, capabilities });
    connection.notify('initialized', {});
    context.subscriptions.push(...register(server.capabilities.semanticTokensProvider.legend, refreshed), ...follow());
}

async function deactivate() {
    if (!connection)
        return;
    await connection.ask('shutdown', null);
    connection.notify('exit', null);
}

module.exports = { activate, deactivate };
