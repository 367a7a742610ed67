;;; mdl-mode.el --- Models of mpc  -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "28.1"))
;; Keywords: languages

;;; Commentary:

;; Syntax of .mdl files, and `mpc lsp' for them with eglot (part of Emacs 29; in 28 a package):
;;
;;     (add-to-list 'load-path ".../editors/emacs")
;;     (require 'mdl-mode)
;;     (add-hook 'mdl-mode-hook #'eglot-ensure)

;;; Code:

(defvar mdl-server-command '("mpc" "lsp")
  "The language server; options of the layout follow: (\"mpc\" \"lsp\" \"--mesh\" \"dp=2\").")

(defvar mdl-mode-syntax-table
  (let ((table (make-syntax-table)))
    (modify-syntax-entry ?# "<" table)
    (modify-syntax-entry ?\n ">" table)
    (modify-syntax-entry ?_ "w" table)
    (modify-syntax-entry ?' "w" table)
    table)
  "Comments begin with #; _ is part of a name.")

(defvar mdl-font-lock-keywords
  `((,(regexp-opt '("const" "dim" "block" "model" "optimizer" "param" "input" "state" "train" "parallel" "repeat" "scan"
                    "yield" "update" "return" "loss" "output" "group" "mesh" "shard" "pipeline" "zero" "recompute" "offload"
                    "padded" "no_decay" "frozen" "over" "else" "as")
                  'words)
     . font-lock-keyword-face)
    ("\\_<\\(?:block\\|model\\|optimizer\\)\\s-+\\(\\w+\\)" 1 font-lock-function-name-face)
    ("\\_<\\(?:true\\|false\\)\\_>" . font-lock-constant-face)
    ("\\_<\\(?:f32\\|i32\\|bool\\)\\_>" . font-lock-type-face)
    ("\\(\\w+\\)(" 1 font-lock-function-name-face))
  "Keywords are those of docs/language.md.")

(defun mdl-indent-line ()
  "Indents by four columns for each open brace."
  (interactive)
  (let* ((closes (save-excursion (back-to-indentation) (looking-at-p "}")))
         (depth (save-excursion (back-to-indentation) (car (syntax-ppss))))
         (column (* 4 (max 0 (- depth (if closes 1 0))))))
    (if (<= (current-column) (current-indentation))
        (indent-line-to column)
      (save-excursion (indent-line-to column)))))

;;;###autoload
(define-derived-mode mdl-mode prog-mode "mdl"
  "Models of mpc."
  (setq-local comment-start "# ")
  (setq-local comment-start-skip "#+\\s-*")
  (setq-local indent-line-function #'mdl-indent-line)
  (setq-local indent-tabs-mode nil)
  (setq-local font-lock-defaults '(mdl-font-lock-keywords)))

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.mdl\\'" . mdl-mode))

(defvar eglot-server-programs)
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs `(mdl-mode . ,(lambda (&rest _) mdl-server-command))))

(provide 'mdl-mode)
;;; mdl-mode.el ends here
