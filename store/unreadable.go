package store

// A value that is damaged is not served, and what is not served must not look as if it had never
// been: whoever finds an owner missing deletes what it owned. So where an operator chooses to go on
// without a value, a mark stands in its place, which says what was wrong and can be told from every
// value that is text.

// unreadableMark is a byte that no UTF-8 text has.
const unreadableMark = 0xf5

// MarkUnreadable returns what is stored instead of a value that cannot be read, and why it cannot.
func MarkUnreadable(why string) []byte { return append([]byte{unreadableMark}, why...) }

// Unreadable says whether a value only stands for one that cannot be read, and why that is.
func Unreadable(value []byte) (why string, ok bool) {
	if len(value) == 0 || value[0] != unreadableMark {
		return "", false
	}
	return string(value[1:]), true
}
