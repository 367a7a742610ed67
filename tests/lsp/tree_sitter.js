// Prints a grammar.js of tree-sitter as JSON: what `tree-sitter generate` makes of it first.
const symbols = new Proxy({}, { get: (_, name) => ({ type: 'SYMBOL', name }) });
const rule = part => typeof part === 'string' ? { type: 'STRING', value: part }
    : part instanceof RegExp ? { type: 'PATTERN', value: part.source } : part;
const many = type => (...parts) => ({ type, members: parts.map(rule) });
const one = type => part => ({ type, content: rule(part) });
const level = type => (value, part) => part === undefined ? { type, value: 0, content: rule(value) } : { type, value, content: rule(part) };
Object.assign(globalThis, {
    seq: many('SEQ'), choice: many('CHOICE'), repeat: one('REPEAT'), repeat1: one('REPEAT1'), optional: one('OPTIONAL'), token: one('TOKEN'),
    prec: Object.assign(level('PREC'), { left: level('PREC_LEFT'), right: level('PREC_RIGHT') }),
    field: (name, part) => ({ type: 'FIELD', name, content: rule(part) }),
    alias: (part, as) => ({ type: 'ALIAS', content: rule(part), value: rule(as).name }),
    grammar: options => ({
        name: options.name, word: options.word(symbols).name, extras: options.extras(symbols).map(rule),
        rules: Object.fromEntries(Object.entries(options.rules).map(([name, make]) => [name, rule(make(symbols))])),
    }),
});
console.log(JSON.stringify(require(require('path').resolve(process.argv[2]))));
