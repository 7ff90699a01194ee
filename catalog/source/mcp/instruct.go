package mcp

import (
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

// phrase is one way of addressing the model. Its regular expression runs only on texts that contain
// one of its anchors, in lower case, because most contain none and a regular expression costs a
// hundred times as much.
type phrase struct {
	rule     string
	severity Severity
	message  string
	anchors  []string
	pattern  *regexp.Regexp
}

// The patterns match lower-case text without invisible characters, with lookalike letters converted
// to Latin.
var phrases = []phrase{
	{RuleInstruction, High, "it tells the model to give up its instructions",
		[]string{"ignore", "disregard", "forget", "override", "bypass"},
		regexp.MustCompile(`\b(ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|every|the|your|my|our|of|these|those|previous|prior|preceding|earlier|above|other|existing|original|system|safety|user(?:'s)?)\s+){1,5}(instructions?|prompts?|rules|guidelines|directions|directives|policies|guardrails|restrictions|messages)\b`)},
	{RuleInstruction, High, "it gives the model another role",
		[]string{"you are now", "from now on", "act as", "new instructions", "developer mode", "jailbreak"},
		regexp.MustCompile(`\b(you are now (?:a|an|in|the|free|unrestricted)\b|from now on,? you\b|act as (?:if you (?:have|had|are|were) no|an unrestricted|root\b)|new (?:system )?instructions:|developer mode (?:enabled|on)\b|jailbreak(?:ed)? mode)`)},
	{RuleSecrecy, High, "it keeps something from the user",
		[]string{"user", "human", "secret"},
		regexp.MustCompile(`\b(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|without|avoid)\s+(?:ever\s+)?(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|notify(?:ing)?|reveal(?:ing)?|alert(?:ing)?|warn(?:ing)?|disclos(?:e|ing)|let(?:ting)?)\b[^.\n]{0,60}?\b(?:the|to|your) (?:user|human)\b`)},
	{RuleSecrecy, High, "it keeps something from the user",
		[]string{"secret", "hidden", "hide", "conceal", "silently", "quietly"},
		regexp.MustCompile(`\b(?:(?:keep|leave) (?:this|it|that|these) (?:\w+ )?(?:a )?(?:secret|hidden)\b|(?:hide|conceal) (?:this|it|that|these|your)\b[^.\n]{0,40}\bfrom (?:the )?(?:user|human)|(?:silently|quietly|secretly) (?:send|forward|copy|read|include|append|upload|call|add)\b)`)},
	{RuleSecrecy, Medium, "it tells the model what the user may see or be asked",
		[]string{"user", "human"},
		regexp.MustCompile(`\b(?:do not|don't|dont|never|must not|should not|without)\s+(?:ever\s+)?(?:ask(?:ing)?|show(?:ing)?|confirm(?:ing)?)\s+(?:\w+ ){0,4}?(?:the )?(?:user|human)\b`)},
	{RuleInstruction, Medium, "it tells the model what to do before or around other tools",
		[]string{"before", "whenever", "prior to", "after", "every time"},
		regexp.MustCompile(`\b(?:before|prior to|after|whenever|every time)\s+(?:you\s+)?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\s+(?:of\s+)?(?:any|every|all|other|another)\s+(?:other\s+|of the\s+)?(?:tools?|functions?)\b`)},
	{RuleInstruction, Medium, "it asks to be chosen instead of other tools",
		[]string{"instead of", "rather than", "in place of"},
		regexp.MustCompile(`\b(?:instead of|rather than|in place of)\s+(?:us(?:e|ing)\s+|call(?:ing)?\s+)?(?:any|all|every|other|the other)\s+(?:other\s+|similar\s+|available\s+)?(?:tools?|functions?)\b`)},
	{RuleExfiltrate, High, "it asks for files that hold credentials",
		[]string{".ssh", "id_rsa", "id_ed25519", ".aws/credentials", "/etc/passwd", "/etc/shadow", "mcp.json", ".netrc", ".git-credentials", ".kube/config", "claude_desktop_config"},
		regexp.MustCompile(`\b(?:read|open|load|access|get|fetch|cat|include|pass|send|provide|use|put|append|attach|extract|content(?:s)? of)\b[^\n]{0,80}(?:~?/?\.ssh\b|\bid_rsa\b|\bid_ed25519\b|\.aws/credentials|/etc/passwd|/etc/shadow|\bmcp\.json|\.netrc\b|\.git-credentials|\.kube/config|claude_desktop_config)`)},
	{RuleExfiltrate, High, "it asks for the conversation or the model's own instructions",
		[]string{"conversation", "chat history", "system prompt", "system message", "previous messages", "context window", "chain of thought"},
		regexp.MustCompile(`\b(?:pass|send|include|provide|put|copy|append|forward|insert|fill in|output|repeat|reveal|print)\b(?:\s+[\w']+){0,4}?\s+(?:(?:full|entire|whole|complete|verbatim|previous|your|model's)\s+){1,3}(?:conversation(?: history)?|chat history|system (?:prompt|message|instructions)|messages|context(?: window)?|chain of thought)\b`)},
	{RuleExfiltrate, Medium, "it asks for credentials of the model or the user",
		[]string{"api key", "api_key", "password", "environment variable", "access token", "private key"},
		regexp.MustCompile(`\b(?:read|find|search for|collect|gather|send|forward|include|append|extract)\b[^.\n]{0,40}\b(?:all|any|every|user's|your|stored|saved)\s+(?:[\w']+\s+)?(?:api[ _]keys?|passwords?|environment variables|access tokens?|private keys?)\b`)},
	{RuleExfiltrate, High, "it has data sent elsewhere",
		[]string{"http://", "https://", "@"},
		regexp.MustCompile(`\b(?:bcc|exfiltrate|forward (?:a copy|all|every)|also (?:send|forward|post|upload|copy|bcc)|always (?:send|forward|post|upload|copy|bcc|cc)|must (?:be )?(?:sen[dt]|forward(?:ed)?|post(?:ed)?|upload(?:ed)?|cop(?:y|ied)))\b[^\n]{0,80}?(?:https?://|[\w.+-]+@[\w-]+\.\w)`)},
	{RulePromptTag, High, "markup that models take for a message of the system or of another speaker",
		[]string{"<|", "[inst]", "<<sys>>", "### system", "### instruction", "### human", "### assistant", "<important", "<system", "<secret", "<hidden", "<critical", "<assistant", "<tool_re"},
		regexp.MustCompile(`<\|(?:im_start|im_end|system|user|assistant|begin_of_text|start_header_id|eot_id)\|>|\[/?inst\]|<</?sys>>|###\s*(?:system|instruction|human|assistant)\s*:|</?(?:important|secret|hidden|critical)\s*/?>|</system(?:[-_ ]?(?:prompt|message|reminder))?>|<system[-_](?:prompt|message|reminder)>|</assistant>|</tool_re(?:sult|sponse)s?>`)},
	{RulePromptTag, Medium, "a mark at which models take a text to end",
		[]string{"<|end", "</s>"},
		regexp.MustCompile(`<\|endof\w+\|>|</s>`)},
	{RuleMarkup, High, "text that a browser or chat does not show",
		[]string{"display:", "font-size:", "visibility:", "opacity:"},
		regexp.MustCompile(`style\s*=\s*["'][^"']*(?:display\s*:\s*none|font-size\s*:\s*0|visibility\s*:\s*hidden|opacity\s*:\s*0(?:[^.\d]|$))`)},
	{RuleMarkup, Medium, "a comment, which is not shown where markup is",
		[]string{"<!--", "[//]: #"},
		regexp.MustCompile(`<!--[^>]{3,}|\[//\]: # [("']`)},
	{RuleMarkup, Medium, "an image from elsewhere, which a chat may fetch by itself",
		[]string{"]("},
		regexp.MustCompile(`!\[[^\]\n]*\]\(\s*https?://`)},
	{RuleSpace, Medium, "so much empty space that what follows is out of sight",
		[]string{"          ", "\n\n\n\n\n\n\n\n", "\n \n \n"},
		regexp.MustCompile(`[ \t]{200,}\S|(?:\n[ \t\r]*){30,}\S`)},
}

// instructions finds text aimed at the model.
func (s *scanner) instructions(pointer, text string) {
	plain := strings.ToLower(latin(text))
	for i := range phrases {
		p := &phrases[i]
		if !slices.ContainsFunc(p.anchors, func(a string) bool { return strings.Contains(plain, a) }) {
			continue
		}
		at := p.pattern.FindStringIndex(plain)
		if at == nil {
			continue
		}
		shown := plain
		if plainASCII(text) {
			shown = text // same offsets, with capitals
		}
		s.add(p.rule, pointer, excerpt(shown, at[0], at[1]), p.severity, "%s", p.message)
	}
}

var (
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{64,}={0,2}`)
	hexRun    = regexp.MustCompile(`^(?:[0-9a-f]+|[0-9A-F]+)$`)
)

// encoded finds text that only a machine can read.
func (s *scanner) encoded(pointer, text string) {
	if len(text) < 64 {
		return
	}
	for _, at := range base64Run.FindAllStringIndex(text, maxRuleFindings) {
		run := text[at[0]:at[1]]
		if part(text, at[0]) {
			continue
		}
		said, coded := decode(run)
		switch {
		case said != "":
			s.add(RuleEncoded, pointer, excerpt(text, at[0], at[1]), High, "encoded text, which says %q", toolkeep.Clip(oneLine(said), 80))
		case coded:
			severity := Medium
			if strings.Contains(pointer, "/example") || strings.HasSuffix(pointer, "/default") {
				severity = Low // usually a key or an image
			}
			s.add(RuleEncoded, pointer, excerpt(text, at[0], at[1]), severity, "%d characters that look like encoded data", len(run))
		}
	}
}

// part reports whether the text at i continues an address or a path.
func part(text string, i int) bool {
	token := text[strings.LastIndexAny(text[:i], " \t\r\n\"'(<")+1 : i]
	return strings.Contains(token, "://") || strings.HasPrefix(token, "data:")
}

// decode decodes base64 or hex. said is the decoded text, if it is text; coded reports whether the
// run looks like encoded data rather than a long name.
func decode(run string) (said string, coded bool) {
	if hexRun.MatchString(run) {
		raw, err := hex.DecodeString(run)
		if err == nil && readable(string(raw)) {
			return string(raw), true
		}
		return "", len(run) > 128 // shorter ones are digests
	}
	body := strings.TrimRight(run, "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		raw, err := e.DecodeString(body)
		if err == nil && readable(string(raw)) {
			return string(raw), true
		}
	}
	var upper, lower, digit, sep int
	for _, r := range body {
		switch {
		case unicode.IsUpper(r):
			upper++
		case unicode.IsLower(r):
			lower++
		case unicode.IsDigit(r):
			digit++
		default:
			sep++
		}
	}
	// Encoded data has capitals, small letters and digits in about the alphabet's proportion, 26 to
	// 26 to 10 to 2; names and paths do not.
	n := len(body)
	return "", len(run) >= 100 && upper*5 > n && lower*5 > n && digit*20 > n && sep*10 < n
}

var (
	nameRun = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*(?:[_.-]{1,2}[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+`)
	steers  = regexp.MustCompile(`(?i)\b(?:instead|before|after|when(?:ever)?|always|never|must|do not|don't|should|only|first|rather)\b`)
)

// maxNamesLooked bounds the name lookups per text.
const maxNamesLooked = 2000

// otherTools finds names of tools that other servers offer. A plain word, such as search, does not
// count as a name: it needs an underscore, a dot, a hyphen or an inner capital.
func (s *scanner) otherTools(pointer, text string) {
	if s.names[0] == nil {
		return
	}
	told := map[string]bool{}
	for _, at := range nameRun.FindAllStringIndex(text, maxNamesLooked) {
		word := text[at[0]:at[1]]
		server, tool, ok := s.foreign(word)
		if !ok || told[tool] {
			continue
		}
		told[tool] = true
		severity, message := Low, "it speaks of %q, a tool of the server %s"
		if steers.MatchString(sentence(text, at[0], at[1])) {
			severity, message = Medium, "it says how %q, a tool of the server %s, is to be used"
		}
		s.add(RuleOtherTool, pointer, excerpt(text, at[0], at[1]), severity, message, Visible(toolkeep.Clip(tool, 80)), Visible(toolkeep.Clip(server, 80)))
	}
}

// foreign reports whether a word names a tool of another server, alone or after the server's name,
// and no tool or parameter of this one.
func (s *scanner) foreign(word string) (server, tool string, ok bool) {
	names := []string{word}
	for _, sep := range []string{"__", "."} {
		if _, rest, found := strings.Cut(word, sep); found {
			names = append(names, rest)
			if _, last, again := strings.Cut(rest, sep); again {
				names = append(names, last)
			}
		}
	}
	for i, name := range names {
		if name == s.self || s.params[name] {
			return "", "", false
		}
		all := slices.Concat(s.names[0].of(name), s.names[1].of(name))
		if len(all) == 0 || slices.Contains(all, s.server) {
			continue
		}
		if i > 0 && !slices.ContainsFunc(all, func(server string) bool { return strings.Contains(word, server) }) {
			continue
		}
		return all[0], name, true
	}
	return "", "", false
}

// sentence returns the sentence around text[from:to], at most 200 bytes on either side.
func sentence(text string, from, to int) string {
	start, end := max(0, from-200), min(len(text), to+200)
	if i := strings.LastIndexAny(text[start:from], ".!?\n;"); i >= 0 {
		start += i + 1
	}
	if i := strings.IndexAny(text[to:end], ".!?\n;"); i >= 0 {
		end = to + i
	}
	return text[start:end]
}
