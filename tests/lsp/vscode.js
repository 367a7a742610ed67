// Runs editors/vscode/extension.js with a stand-in for VS Code: `node vscode.js MPC MODEL`.  Prints what it got, as JSON.
'use strict';
const fs = require('fs');
const Module = require('module');
const path = require('path');

const [mpc, model] = process.argv.slice(2);
const providers = {}, shown = { errors: [] };
let arrived = () => {};

class Parts { constructor(...parts) { this.parts = parts; } }
const plain = new Proxy({}, { get: (_, name) => name });
const uri = text => ({ toString: () => text });
const listener = () => ({ dispose() {} });
const stub = {
    languages: new Proxy({}, { get: (_, name) => name === 'createDiagnosticCollection'
        ? () => ({ set: (at, list) => { shown.diagnostics = list; arrived(); } })
        : (languages, provider) => { providers[name] = provider; } }),
    workspace: {
        getConfiguration: () => ({ get: key => (key === 'command' ? mpc : []) }),
        textDocuments: [], onDidOpenTextDocument: listener, onDidChangeTextDocument: f => { stub.changed = f; },
        onDidCloseTextDocument: listener
    },
    window: { showErrorMessage: text => shown.errors.push(text) },
    EventEmitter: class { fire() {} },
    Uri: { parse: uri },
    Diagnostic: class { constructor(range, message, severity) { Object.assign(this, { range, message, severity }); } },
    WorkspaceEdit: class { constructor() { this.edits = []; } replace(at, range, text) { this.edits.push([range, text]); } },
    DiagnosticSeverity: plain, CodeActionKind: plain
};
const vscode = new Proxy(stub, { get: (object, name) => object[name] || Parts });
const load = Module._load;
Module._load = (request, ...more) => (request === 'vscode' ? vscode : load(request, ...more));

const text = fs.readFileSync(model, 'utf8'), lines = text.split('\n');
const row = lines.findIndex(line => line.includes('q = dot'));
const place = { line: row, character: lines[row].indexOf('q = dot') };
const document = { uri: uri(`file://${model}`), languageId: 'mdl', version: 1, getText: () => text };

async function run() {
    const extension = require(path.join(__dirname, '../../editors/vscode/extension.js'));
    stub.workspace.textDocuments.push(document);
    let got = new Promise(resolve => { arrived = resolve; });
    await extension.activate({ subscriptions: [] });
    await got;
    shown.before = shown.diagnostics.length;
    got = new Promise(resolve => { arrived = resolve; });
    document.version = 2;
    stub.changed({ document, contentChanges: [{ range: { start: place, end: place }, text: '(' }] });
    await got;
    shown.broken = shown.diagnostics.map(d => d.message);
    got = new Promise(resolve => { arrived = resolve; });
    stub.changed({ document, contentChanges: [{ range: { start: place, end: { ...place, character: place.character + 1 } }, text: '' }] });
    await got;
    shown.hover = (await providers.registerHoverProvider.provideHover(document, place)).parts[0].parts[0];
    shown.rename = (await providers.registerRenameProvider.provideRenameEdits(document, place, 'other')).edits.length;
    shown.symbols = (await providers.registerDocumentSymbolProvider.provideDocumentSymbols(document)).map(s => s.parts[0]);
    shown.completion = (await providers.registerCompletionItemProvider.provideCompletionItems(document, place)).length;
    shown.hints = (await providers.registerInlayHintsProvider.provideInlayHints(document, { start: { line: 0, character: 0 },
        end: { line: lines.length, character: 0 } })).map(h => h.parts[1]);
    shown.tokens = (await providers.registerDocumentSemanticTokensProvider.provideDocumentSemanticTokens(document)).parts[0].length;
    delete shown.diagnostics;
    await extension.deactivate();
    console.log(JSON.stringify(shown));
}

run().catch(error => { console.error(error); process.exit(1); });
