// The language of .mdl files, as frontend/syntax/scan.l and grammar.y have it, but for the ends of lines: no statement can be read as
// the rest of the one before it, so line breaks are blanks here.
const list = rule => seq(rule, repeat(seq(',', rule)));
const binary = [['<', 1], ['>', 1], ['<=', 1], ['>=', 1], ['==', 1], ['!=', 1], ['+', 2], ['-', 2], ['*', 3], ['/', 3], ['%', 3]];

// Words that begin a statement and may also be the name of a value or a setting.
const statement_words = ['optimizer', 'state', 'update', 'scan', 'yield', 'output', 'offload', 'group'];

module.exports = grammar({
    name: 'mdl',
    word: $ => $.identifier,
    extras: $ => [/[\s\uFEFF]/, $.comment],

    rules: {
        source_file: $ => repeat($._statement),
        body: $ => seq('{', repeat($._statement), '}'),

        _statement: $ => choice($.const, $.dim, $.block, $.model, $.section, $.param, $.state, $.update, $.input, $.assignment,
            $.repeat, $.scan, $.yield, $.return, $.loss, $.output, $.mesh, $.shard, $.pipeline, $.zero, $.recompute, $.offload,
            $.optimizer, $.group),

        const: $ => seq('const', field('name', $.identifier), '=', $._expression),
        dim: $ => seq('dim', field('name', $.identifier), optional(seq('=', $._expression)), optional(seq('padded', $._expression))),
        block: $ => seq('block', field('name', $.identifier), optional(seq('[', list($.identifier), ']')),
            '(', optional(list($.parameter)), ')', $.body),
        parameter: $ => seq(field('name', $.identifier), ':', choice($.type, 'const')),
        model: $ => seq('model', field('name', $.identifier), $.body),
        section: $ => seq(choice('train', 'parallel'), $.body),
        optimizer: $ => seq('optimizer', field('name', $.identifier), $.arguments, $.body),

        param: $ => seq('param', $._names, ':', $.type, '=', $._expression, optional('no_decay'), optional('frozen')),
        input: $ => seq('input', field('name', $.identifier), ':', $.type, optional(seq('=', $._expression))),
        state: $ => seq('state', $._names, choice(
            seq(optional(seq(':', $.type)), '=', $._expression),
            seq('=', $.mean_of, $.identifier, '(', $._expression, ')'))),
        mean_of: $ => token(seq('mean', /[ \t]+/, 'of')),
        update: $ => seq('update', choice($._expression, seq(field('name', $.identifier), '=', $._expression))),
        assignment: $ => seq(
            field('name', choice($.identifier, alias(choice(...statement_words), $.identifier))),
            repeat(seq(',', field('name', $.identifier))), optional(seq(':', $.type)), '=', $._expression),
        yield: $ => seq('yield', field('name', $.identifier), optional(seq(':', $.type)), '=', $._expression),
        repeat: $ => seq('repeat', $._expression, optional(seq('as', field('name', $.identifier))), $.body),
        scan: $ => seq('scan', $.identifier, optional($.options), $.body),
        return: $ => seq('return', list($._expression)),
        loss: $ => seq('loss', $._expression),
        output: $ => seq('output', field('name', $.identifier),
            optional(seq(optional(seq(':', $.type)), '=', $._expression))),

        mesh: $ => seq('mesh', list($.option)),
        shard: $ => seq('shard', list(choice($.identifier, $.tuple)), 'over', $.identifier, optional(seq('else', $.identifier)),
            optional($.options)),
        pipeline: $ => seq('pipeline', list($.identifier), 'over', $.identifier, optional(seq(',', list($.option)))),
        zero: $ => seq('zero', $.number, optional(seq('over', list($.identifier))), optional($.options)),
        recompute: $ => seq('recompute', $._expression),
        offload: $ => seq('offload', list($.identifier), 'to', $.identifier, optional($.string),
            repeat(choice(seq('keep', $._expression), seq('just_in_time', optional($.number))))),
        group: $ => seq('group', $.string, choice($.arguments, $.call)),
        options: $ => seq('(', list($.option), ')'),
        option: $ => seq($.identifier, optional(seq('=', choice($._expression, seq('[', list($._expression), ']'))))),

        _names: $ => seq(field('name', $.identifier), repeat(seq(',', field('name', $.identifier)))),
        type: $ => seq(optional($.identifier), '[', optional(list(choice($.identifier, '...'))), ']'),

        _expression: $ => choice($.number, $.string, $.boolean, prec(-1, $.identifier), alias('param', $.identifier),
            alias('1f1b', $.identifier), $.call, $.instance, $.frozen, $.index, $.unary, $.binary, $.parenthesized),
        call: $ => seq(field('function', $.identifier), optional(seq('[', list($.identifier), ']')), $.arguments),
        instance: $ => prec(6, seq($.call, 'as', field('name', $.identifier))),
        frozen: $ => prec(5, seq('frozen', choice($.call, $.instance))),
        index: $ => choice(
            seq($.identifier, '[', $.identifier, '=', choice($._expression, $.range), ']'),
            prec(6, seq($._expression, '[', $.identifier, '=', choice($._expression, $.range), ']'))),
        range: $ => seq($._expression, ':', $._expression, optional(seq('->', $.identifier))),
        unary: $ => prec(4, seq('-', $._expression)),
        binary: $ => choice(...binary.map(([sign, level]) => prec.left(level, seq($._expression, sign, $._expression))),
            prec.right(5, seq($._expression, '^', $._expression))),
        parenthesized: $ => seq('(', $._expression, ')'),

        arguments: $ => seq('(', optional(list($._argument)), ')'),
        _argument: $ => choice($._expression, $.keyword, $.arrow),
        keyword: $ => seq(field('name', $.identifier), '=', $._expression),
        arrow: $ => choice(seq($._expression, '->', choice($.identifier, $.tuple)), seq($.tuple, '->', $.identifier)),
        tuple: $ => seq('(', $.identifier, repeat1(seq(',', $.identifier)), ')'),

        boolean: $ => choice('true', 'false'),
        number: $ => /[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]+)?/,
        string: $ => /"[^"\n]*"/,
        identifier: $ => /[A-Za-z_][A-Za-z0-9_]*'?'?/,
        comment: $ => token(seq('#', /[^\n]*/)),
    },
});
