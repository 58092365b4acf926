// The SQL box, loaded when somebody opens it: completion of tables and columns.
import { autocompletion, closeBrackets, completionKeymap } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { sql, StandardSQL } from '@codemirror/lang-sql'
import { bracketMatching, defaultHighlightStyle, HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { EditorState } from '@codemirror/state'
import { EditorView, keymap, placeholder } from '@codemirror/view'

export function editor(parent: HTMLElement, text: string, schema: Record<string, string[]>, dark: boolean, changed: (text: string) => void, run: () => void) {
  const light = HighlightStyle.define(dark ? defaultHighlightStyle.specs.map((one) => ({ ...one, color: one.color ? 'var(--link)' : undefined })) : [...defaultHighlightStyle.specs])
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        history(),
        closeBrackets(),
        bracketMatching(),
        autocompletion(),
        sql({ dialect: StandardSQL, schema, upperCaseKeywords: false }),
        syntaxHighlighting(light),
        placeholder('select …   (Ctrl-Enter runs it)'),
        keymap.of([{ key: 'Mod-Enter', run: () => (run(), true) }, ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': 'SQL' }),
        EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
        EditorView.theme({ '&': { fontSize: '13px' }, '.cm-placeholder': { color: 'var(--dim)' }, '.cm-content': { caretColor: 'currentColor', minHeight: '6.5rem' } }, { dark }),
      ],
    }),
  })
  return view
}
