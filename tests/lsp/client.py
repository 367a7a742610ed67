"""A session of mpc lsp with pygls' client, which checks each answer against the protocol's types."""
import asyncio
import os
import pathlib

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
URI = "file:///work/model.mdl"


class Session:
    """Each call waits for the answer; `notes` has the diagnostics of each URI that came last."""

    def __init__(self, *options, initialization=None):
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("tests", "1")
        self.notes, self.published, self.versions = {}, {}, {}
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._published(params))
        self.refreshes, self.has_mesh = 0, "--mesh" in options
        self.client.feature(lsp.WORKSPACE_INLAY_HINT_REFRESH)(lambda params: self._refreshed())
        self._run(self.client.start_io(str(MPC), "lsp", *options))
        self.capabilities = self._run(self.client.initialize_async(lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(workspace=lsp.WorkspaceClientCapabilities(
                inlay_hint=lsp.InlayHintWorkspaceClientCapabilities(refresh_support=True))),
            initialization_options=initialization))).capabilities
        self.client.initialized(lsp.InitializedParams())

    def _run(self, awaitable):
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, 60))

    def _published(self, params):
        self.notes[params.uri] = params.diagnostics
        self.published[params.uri] = params.version

    def _refreshed(self):
        self.refreshes += 1

    def close(self):
        """The exit status of the server."""
        self._run(self.client.shutdown_async(None))
        server = self.client._server
        self.client.exit(None)
        status = self._run(server.wait())
        self._run(self.client.stop())
        self.loop.close()
        return status

    def ask(self, name, params):
        return self._run(getattr(self.client, name + "_async")(params))

    # --- Documents ---

    def open(self, text, uri=URI):
        self.versions[uri] = 1
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(
            lsp.TextDocumentItem(uri=uri, language_id="mdl", version=1, text=text)))
        return self.wait_for_notes(uri)

    def change(self, *changes, uri=URI):
        """Changes are (begin, end, text), with (line, character); or texts, which replace all."""
        self.versions[uri] += 1
        events = [lsp.TextDocumentContentChangeWholeDocument(c) if isinstance(c, str) else
                  lsp.TextDocumentContentChangePartial(range=a_range(c[0], c[1]), text=c[2]) for c in changes]
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri]), events))
        return self.wait_for_notes(uri)

    def close_document(self, uri=URI):
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))

    def wait_for_notes(self, uri=URI):
        async def wait():
            while self.published.get(uri) != self.versions[uri]:
                await asyncio.sleep(0.002)
        self._run(wait())
        return self.notes[uri]

    def hints(self, text, uri=URI):
        """All hints; those of a layout that takes long come with a refresh."""
        whole = a_range((0, 0), (text.count("\n") + 1, 0))
        params = lsp.InlayHintParams(text_document=lsp.TextDocumentIdentifier(uri), range=whole)
        found = self.ask("text_document_inlay_hint", params)
        if self.has_mesh and all(hint.kind for hint in found):
            async def wait():
                for _ in range(2000):
                    if self.refreshes:
                        return
                    await asyncio.sleep(0.01)
            self._run(wait())
            found = self.ask("text_document_inlay_hint", params)
        return found

    def at(self, name, place, uri=URI, **more):
        """Asks about a place."""
        kinds = {"text_document_definition": lsp.DefinitionParams, "text_document_references": lsp.ReferenceParams,
                 "text_document_document_highlight": lsp.DocumentHighlightParams,
                 "text_document_prepare_rename": lsp.PrepareRenameParams, "text_document_rename": lsp.RenameParams,
                 "text_document_hover": lsp.HoverParams, "text_document_completion": lsp.CompletionParams,
                 "text_document_signature_help": lsp.SignatureHelpParams}
        return self.ask(name, kinds[name](text_document=lsp.TextDocumentIdentifier(uri),
                                          position=lsp.Position(*place), **more))


def a_range(begin, end):
    return lsp.Range(lsp.Position(*begin), lsp.Position(*end))


def place(text, part, nth=0, after=False):
    """(line, UTF-16 character) of the n-th time that `part` is in the text, or of its end."""
    at = -1
    for _ in range(nth + 1):
        at = text.index(part, at + 1)
    before = text[:at + (len(part) if after else 0)]
    line = before.count("\n")
    return line, len(before.split("\n")[-1].encode("utf-16-le")) // 2


def part_at(text, r):
    """The part of a text in a range."""
    lines = [line.encode("utf-16-le") for line in text.split("\n")]
    if r.start.line == r.end.line:
        return lines[r.start.line][2 * r.start.character:2 * r.end.character].decode("utf-16-le")
    first = lines[r.start.line][2 * r.start.character:].decode("utf-16-le")
    last = lines[r.end.line][:2 * r.end.character].decode("utf-16-le") if r.end.line < len(lines) else ""
    return "\n".join([first, *(l.decode("utf-16-le") for l in lines[r.start.line + 1:r.end.line]), last])


def applied(text, edits):
    """The text after the edits, which do not overlap."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(position):
        if position.line >= len(lines):
            return len(text)
        line = lines[position.line].encode("utf-16-le")[:2 * position.character].decode("utf-16-le")
        return starts[position.line] + len(line)

    for edit in sorted(edits, key=lambda e: offset(e.range.start), reverse=True):
        text = text[:offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end):]
    return text
