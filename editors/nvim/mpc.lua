-- Starts mpc lsp for models and dumps.  Options of the layout follow `lsp`: '--mesh', 'dp=2,tp=4'.
vim.api.nvim_create_autocmd('FileType', { pattern = { 'mdl', 'mir' }, callback = function(event)
  local id = vim.lsp.start_client({ name = 'mpc', cmd = { 'mpc', 'lsp' }, root_dir = vim.fn.getcwd() })
  if id then vim.lsp.buf_attach_client(event.buf, id) end
end })
