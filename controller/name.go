package controller

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// nameMax is how long a name can be that is a label's value and a DNS label, too.
const nameMax = 63

// hashLength is how much of a hash a name ends with: 50 bits, so that a million children of one owner
// collide once in two thousand such owners.
const hashLength = 10

// Name returns a name that follows from what it is given, begins with as much of the prefix as there is
// room for, and ends with a hash of all: what is made again after an answer was lost is found to be there.
// An owner's uid among the parts keeps apart what namesakes make.
func Name(prefix string, parts ...string) string {
	hash := sha256.New()
	for _, part := range append([]string{prefix}, parts...) {
		hash.Write([]byte(part))
		hash.Write([]byte{0}) // so that "ab", "c" is not "a", "bc"
	}
	text := strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil)))[:hashLength]
	prefix = prefix[:min(len(prefix), nameMax-1-hashLength)]
	return strings.TrimRight(prefix, "-.") + "-" + text
}
