package wire

import "fmt"

// members calls fn with each member of an object, its name and value as they are written, until it
// wants no more. A name with escapes is given with them: no name that anybody looks for has any.
func members(text []byte, fn func(name, value []byte) (more bool, err error)) error {
	i, err := enter(text, '{')
	for first := true; err == nil; first = false {
		if i < len(text) && text[i] == '}' && first {
			return nil
		}
		var end int
		if end, err = skip(text, i); err != nil || text[i] != '"' {
			break
		}
		name := text[i+1 : end-1]
		if i = space(text, end); i >= len(text) || text[i] != ':' {
			break
		}
		i = space(text, i+1)
		if end, err = skip(text, i); err != nil {
			break
		}
		more, err := fn(name, text[i:end])
		if err != nil || !more {
			return err
		}
		if i = space(text, end); i >= len(text) {
			break
		}
		if text[i] == '}' {
			return nil
		}
		if text[i] != ',' {
			break
		}
		i = space(text, i+1)
	}
	return fmt.Errorf("%w: %.20q", errText, text)
}

// elements calls fn with each element of an array.
func elements(text []byte, fn func(value []byte) error) error {
	i, err := enter(text, '[')
	for first := true; err == nil; first = false {
		if i < len(text) && text[i] == ']' && first {
			return nil
		}
		var end int
		if end, err = skip(text, i); err != nil {
			break
		}
		if err := fn(text[i:end]); err != nil {
			return err
		}
		if i = space(text, end); i >= len(text) {
			break
		}
		if text[i] == ']' {
			return nil
		}
		if text[i] != ',' {
			break
		}
		i = space(text, i+1)
	}
	return fmt.Errorf("%w: %.20q", errText, text)
}

// enter goes behind the opening of an object or array.
func enter(text []byte, open byte) (int, error) {
	i := space(text, 0)
	if i >= len(text) || text[i] != open {
		return 0, errText
	}
	return space(text, i+1), nil
}

// skip returns where the value that begins at i ends.
func skip(text []byte, i int) (int, error) {
	if i >= len(text) {
		return 0, errText
	}
	switch text[i] {
	case '{', '[':
		b := boundary{at: i}
		if end := b.find(text); end > 0 {
			return end, nil
		}
		return 0, errText
	case '"':
		b := boundary{at: i + 1, quoted: true}
		if b.closeQuote(text) {
			return b.at, nil
		}
		return 0, errText
	}
	from := i
	for i < len(text) && !ends(text[i]) {
		i++
	}
	if i == from {
		return 0, errText
	}
	return i, nil
}

// ends says whether a byte ends a number, or true, false and null.
func ends(c byte) bool {
	switch c {
	case ',', ':', '{', '}', '[', ']', '"', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}
