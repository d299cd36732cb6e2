package apiserver

import "runtime/debug"

// build says what the binary was made from, as far as the Go toolchain wrote it down.
type build struct{ commit, date string }

func readBuild() build {
	b := build{commit: "unknown", date: "1970-01-01T00:00:00Z"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			b.date = s.Value
		}
	}
	return b
}
