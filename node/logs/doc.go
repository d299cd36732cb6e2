// Package logs keeps what a container printed: one line of text per line
// printed, with the time and the stream it came from, in files of bounded size.
//
//	2026-11-29T23:10:00.000000001Z stdout F listening on 127.64.0.7:8080
//
// The format is the one the Container Runtime Interface lays down, so that a
// reader does not care which runtime wrote a file. A Writer appends and
// rotates; Read answers what `kubectl logs` asks for. The two need no lock
// between them: a reader holds the file that it opened, and a line is only read
// when its newline is there, so it never sees half of one.
package logs
