package process

import (
	"encoding/json"
	"fmt"
	"os"
)

// The first arguments under which the binary is executed again.
const (
	shimCommand = "__shim"
	initCommand = "__init"
)

// self names the running binary, even when the file it came from was replaced.
const self = "/proc/self/exe"

// Main plays the part of a shim or of a container's first program when args
// (os.Args) ask for one. A binary that uses this package calls it before
// anything else:
//
//	if handled, code := process.Main(os.Args); handled {
//		os.Exit(code)
//	}
//
// So does the TestMain of a test that starts containers.
func Main(args []string) (handled bool, code int) {
	if len(args) != 3 {
		return false, 0
	}
	var err error
	switch args[1] {
	case shimCommand:
		err = shim(dir(args[2]))
	case initCommand:
		var spec initSpec
		if err = json.Unmarshal([]byte(args[2]), &spec); err == nil {
			err = enter(spec)
		}
	default:
		return false, 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return true, startErrorCode
	}
	return true, 0
}

// startErrorCode is the exit code of a container whose program could not be
// executed; container runtimes use the same.
const startErrorCode = 128
