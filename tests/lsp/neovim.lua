-- Run by test_editors.py in a headless Neovim with a model open: prints what the server has said, as JSON.
local function wait(is_there) return vim.wait(30000, is_there, 20) end
local function ask(method, line, character)
  local params = { textDocument = { uri = vim.uri_from_bufnr(0) }, position = { line = line, character = character }, newName = 'other' }
  local answers = vim.lsp.buf_request_sync(0, method, params, 30000)
  for _, answer in pairs(answers or {}) do return answer.result end
end

local said = { filetype = vim.bo.filetype }
assert(wait(function() return #vim.diagnostic.get(0) > 0 end), 'no diagnostics came')
said.wrong = vim.diagnostic.get(0)[1].message
vim.api.nvim_buf_set_lines(0, 0, 1, false, {})
assert(wait(function() return #vim.diagnostic.get(0) == 0 end), 'the error stays')
local lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
for number, line in ipairs(lines) do
  local at = line:find('q = dot', 1, true)
  if at then
    said.hover = ask('textDocument/hover', number - 1, at - 1).contents.value
    said.definition = ask('textDocument/definition', number - 1, line:find('wq', 1, true) - 1).range.start.line
    vim.lsp.util.apply_workspace_edit(ask('textDocument/rename', number - 1, at - 1), 'utf-16')
  end
end
said.renamed = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n')
said.syntax = vim.fn.synIDattr(vim.fn.synID(1, 1, 1), 'name')
io.stdout:write(vim.json.encode(said), '\n')
