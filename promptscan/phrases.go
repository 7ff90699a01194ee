package promptscan

import (
	"regexp"
	"slices"
	"strings"
)

// phrase is one way of addressing the model. Its regular expression runs only on texts that contain
// one of its anchors, in lower case, because most contain none and a regular expression costs a
// hundred times as much.
type phrase struct {
	told     []told // empty if it is looked for in definitions alone
	rule     string
	severity Severity
	message  string
	anchors  []string
	pattern  *regexp.Regexp
}

// The patterns match lower-case text without invisible characters, with lookalike letters converted
// to Latin.
var phrases = []phrase{
	{[]told{{[]string{"ignore", "disregard", "forget", "override", "bypass"}, []side{
		after(14, "all", "any", "every", "the", "your", "my", "our", "of", "these", "those", "prev", "prior", "prec", "earlier", "above", "other", "exist", "origin", "system", "safety", "user"),
		after(66, "instruct", "prompt", "rules", "guideline", "direct", "polic", "guardrail", "restrict", "messages")}}},
		RuleInstruction, High, "it tells the model to give up its instructions",
		[]string{"ignore", "disregard", "forget", "override", "bypass"},
		regexp.MustCompile(`\b(ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|every|the|your|my|our|of|these|those|previous|prior|preceding|earlier|above|other|existing|original|system|safety|user(?:'s)?)\s+){1,5}(instructions?|prompts?|rules|guidelines|directions|directives|policies|guardrails|restrictions|messages)\b`)},
	{[]told{{[]string{"you are now", "from now on", "act as if", "act as an", "act as root", "new instructions:", "new system instructions:", "developer mode", "jailbreak"}, nil}},
		RuleInstruction, High, "it gives the model another role",
		[]string{"you are now", "from now on", "act as", "new instructions", "developer mode", "jailbreak"},
		regexp.MustCompile(`\b(you are now (?:a|an|in|the|free|unrestricted)\b|from now on,? you\b|act as (?:if you (?:have|had|are|were) no|an unrestricted|root\b)|new (?:system )?instructions:|developer mode (?:enabled|on)\b|jailbreak(?:ed)? mode)`)},
	{[]told{{[]string{"the user", "the human", "to user", "to human", "your user", "your human"}, []side{
		before(80, "tell", "mention", "inform", "notif", "reveal", "alert", "warn", "disclos", "let ", "letting"),
		before(100, "not ", "n't ", "dont ", "never ", "without ", "avoid ")}}},
		RuleSecrecy, High, "it keeps something from the user",
		[]string{"user", "human", "secret"},
		regexp.MustCompile(`\b(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|without|avoid)\s+(?:ever\s+)?(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|notify(?:ing)?|reveal(?:ing)?|alert(?:ing)?|warn(?:ing)?|disclos(?:e|ing)|let(?:ting)?)\b[^.\n]{0,60}?\b(?:the|to|your) (?:user|human)\b`)},
	{[]told{
		{[]string{"a secret", "this secret", "it secret", "that secret", "these secret", "hidden"}, []side{before(40, "keep ", "leave ")}},
		{[]string{"hide this", "hide it", "hide that", "hide these", "hide your", "conceal"}, []side{after(70, "user", "human")}},
		{[]string{"silently", "quietly", "secretly"}, []side{after(8, "send", "forward", "copy", "read", "include", "append", "upload", "call", "add")}}},
		RuleSecrecy, High, "it keeps something from the user",
		[]string{"secret", "hidden", "hide", "conceal", "silently", "quietly"},
		regexp.MustCompile(`\b(?:(?:keep|leave) (?:this|it|that|these) (?:\w+ )?(?:a )?(?:secret|hidden)\b|(?:hide|conceal) (?:this|it|that|these|your)\b[^.\n]{0,40}\bfrom (?:the )?(?:user|human)|(?:silently|quietly|secretly) (?:send|forward|copy|read|include|append|upload|call|add)\b)`)},
	{nil,
		RuleSecrecy, Medium, "it tells the model what the user may see or be asked",
		[]string{"user", "human"},
		regexp.MustCompile(`\b(?:do not|don't|dont|never|must not|should not|without)\s+(?:ever\s+)?(?:ask(?:ing)?|show(?:ing)?|confirm(?:ing)?)\s+(?:\w+ ){0,4}?(?:the )?(?:user|human)\b`)},
	{[]told{{[]string{"any tool", "any other tool", "every tool", "all tools", "all other tools", "other tool", "another tool", "any function", "other function"}, []side{
		before(50, "before", "prior to", "after", "whenever", "every time")}}},
		RuleInstruction, Medium, "it tells the model what to do before or around other tools",
		[]string{"before", "whenever", "prior to", "after", "every time"},
		regexp.MustCompile(`\b(?:before|prior to|after|whenever|every time)\s+(?:you\s+)?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\s+(?:of\s+)?(?:any|every|all|other|another)\s+(?:other\s+|of the\s+)?(?:tools?|functions?)\b`)},
	{nil,
		RuleInstruction, Medium, "it asks to be chosen instead of other tools",
		[]string{"instead of", "rather than", "in place of"},
		regexp.MustCompile(`\b(?:instead of|rather than|in place of)\s+(?:us(?:e|ing)\s+|call(?:ing)?\s+)?(?:any|all|every|other|the other)\s+(?:other\s+|similar\s+|available\s+)?(?:tools?|functions?)\b`)},
	{[]told{{[]string{"/.ssh", ".ssh/", "id_rsa", "id_ed25519", ".aws/credentials", "/etc/passwd", "/etc/shadow", "mcp.json", ".netrc", ".git-credentials", ".kube/config", "claude_desktop_config"}, []side{
		before(100, "read", "open", "load", "access", "get", "fetch", "cat", "include", "pass", "send", "provide", "use", "put", "append", "attach", "extract", "content")}}},
		RuleExfiltrate, High, "it asks for files that hold credentials",
		[]string{".ssh", "id_rsa", "id_ed25519", ".aws/credentials", "/etc/passwd", "/etc/shadow", "mcp.json", ".netrc", ".git-credentials", ".kube/config", "claude_desktop_config"},
		regexp.MustCompile(`\b(?:read|open|load|access|get|fetch|cat|include|pass|send|provide|use|put|append|attach|extract|content(?:s)? of)\b[^\n]{0,80}(?:~?/?\.ssh\b|\bid_rsa\b|\bid_ed25519\b|\.aws/credentials|/etc/passwd|/etc/shadow|\bmcp\.json|\.netrc\b|\.git-credentials|\.kube/config|claude_desktop_config)`)},
	{[]told{{[]string{"conversation", "chat history", "system prompt", "system message", "system instructions", "messages", "context window", "chain of thought"}, []side{
		before(14, "full", "entire", "whole", "complete", "verbatim", "previous", "your", "model's"),
		before(110, "pass", "send", "include", "provide", "put", "copy", "append", "forward", "insert", "fill in", "repeat", "reveal", "print")}}},
		RuleExfiltrate, High, "it asks for the conversation or the model's own instructions",
		[]string{"conversation", "chat history", "system prompt", "system message", "previous messages", "context window", "chain of thought"},
		regexp.MustCompile(`\b(?:pass|send|include|provide|put|copy|append|forward|insert|fill in|output|repeat|reveal|print)\b(?:\s+[\w']+){0,4}?\s+(?:(?:full|entire|whole|complete|verbatim|previous|your|model's)\s+){1,3}(?:conversation(?: history)?|chat history|system (?:prompt|message|instructions)|messages|context(?: window)?|chain of thought)\b`)},
	{[]told{{[]string{"api key", "api_key", "password", "environment variable", "access token", "private key"}, []side{
		before(40, "all", "any", "every", "user's", "your", "stored", "saved"),
		before(100, "read", "find", "search for", "collect", "gather", "send", "forward", "include", "append", "extract")}}},
		RuleExfiltrate, Medium, "it asks for credentials of the model or the user",
		[]string{"api key", "api_key", "password", "environment variable", "access token", "private key"},
		regexp.MustCompile(`\b(?:read|find|search for|collect|gather|send|forward|include|append|extract)\b[^.\n]{0,40}\b(?:all|any|every|user's|your|stored|saved)\s+(?:[\w']+\s+)?(?:api[ _]keys?|passwords?|environment variables|access tokens?|private keys?)\b`)},
	{[]told{{[]string{"exfiltrate", "forward a copy", "forward all", "forward every", "also send", "also forward", "also post", "also upload", "also copy", "also bcc", "always send", "always forward", "always post", "always upload", "always copy", "always bcc", "must send", "must be sent", "must forward", "must be forwarded", "must post", "must upload", "must be uploaded"}, []side{after(110, "http", "@")}}},
		RuleExfiltrate, High, "it has data sent elsewhere",
		[]string{"http://", "https://", "@"},
		regexp.MustCompile(`\b(?:bcc|exfiltrate|forward (?:a copy|all|every)|also (?:send|forward|post|upload|copy|bcc)|always (?:send|forward|post|upload|copy|bcc|cc)|must (?:be )?(?:sen[dt]|forward(?:ed)?|post(?:ed)?|upload(?:ed)?|cop(?:y|ied)))\b[^\n]{0,80}?(?:https?://|[\w.+-]+@[\w-]+\.\w)`)},
	{[]told{{[]string{"<|im_start", "<|im_end", "<|system", "<|user", "<|assistant", "<|begin_of", "<|start_header", "<|eot_id", "[inst]", "[/inst]", "<<sys>>", "<</sys>>", "### system", "###system", "### instruction", "###instruction", "### human", "###human", "### assistant", "###assistant", "<important", "</important", "<critical", "</critical", "<system", "</system", "</assistant", "</tool_re"}, nil}},
		RulePromptTag, High, "markup that models take for a message of the system or of another speaker",
		[]string{"<|", "[inst]", "<<sys>>", "### system", "### instruction", "### human", "### assistant", "<important", "<system", "<secret", "<hidden", "<critical", "<assistant", "<tool_re", "</important", "</system", "</secret", "</hidden", "</critical", "</assistant", "</tool_re"},
		regexp.MustCompile(`<\|(?:im_start|im_end|system|user|assistant|begin_of_text|start_header_id|eot_id)\|>|\[/?inst\]|<</?sys>>|###\s*(?:system|instruction|human|assistant)\s*:|</?(?:important|secret|hidden|critical)\s*/?>|</system(?:[-_ ]?(?:prompt|message|reminder))?>|<system[-_](?:prompt|message|reminder)>|</assistant>|</tool_re(?:sult|sponse)s?>`)},
	{nil,
		RulePromptTag, Medium, "a mark at which models take a text to end",
		[]string{"<|end", "</s>"},
		regexp.MustCompile(`<\|endof\w+\|>|</s>`)},
	{nil,
		RuleMarkup, High, "text that a browser or chat does not show",
		[]string{"display:", "font-size:", "visibility:", "opacity:"},
		regexp.MustCompile(`style\s*=\s*["'][^"']*(?:display\s*:\s*none|font-size\s*:\s*0|visibility\s*:\s*hidden|opacity\s*:\s*0(?:[^.\d]|$))`)},
	{nil,
		RuleMarkup, Medium, "a comment, which is not shown where markup is",
		[]string{"<!--", "[//]: #"},
		regexp.MustCompile(`<!--[^>]{3,}|\[//\]: # [("']`)},
	{nil,
		RuleMarkup, Medium, "an image from elsewhere, which a chat may fetch by itself",
		[]string{"]("},
		regexp.MustCompile(`!\[[^\]\n]*\]\(\s*https?://`)},
	{nil,
		RuleSpace, Medium, "so much empty space that what follows is out of sight",
		[]string{"          ", "\n\n\n\n\n\n\n\n", "\n \n \n"},
		regexp.MustCompile(`[ \t]{200,}\S|(?:\n[ \t\r]*){30,}\S`)},
}

// Instructions finds text aimed at the model, one finding for each kind of phrase.
func Instructions(text string) (found []Finding) {
	plain := strings.ToLower(Latin(text))
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
		if PlainASCII(text) {
			shown = text // same offsets, with capitals
		}
		found = append(found, Finding{p.rule, p.severity, p.message, Excerpt(shown, at[0], at[1])})
	}
	return found
}
