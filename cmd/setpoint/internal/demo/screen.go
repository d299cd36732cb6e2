package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A screen shows the story as lines that stay, and below them a picture that is drawn anew. Where
// the output is no terminal it shows the lines, and the picture when it has changed in words.
type screen struct {
	out      io.Writer
	live     bool // a terminal: the picture may be drawn over
	began    time.Time
	drawn    int // lines of the picture that stand on the screen
	lastSeen string
}

func newScreen(out *os.File) *screen {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &screen{out: out, live: err == nil, began: time.Now()}
}

// say prints a line of the story, with the time since the beginning.
func (s *screen) say(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, "%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// chapter prints a heading.
func (s *screen) chapter(title string) {
	s.clear()
	if s.live {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintf(s.out, "\n%s\n", title)
}

// draw shows the picture.
func (s *screen) draw(p picture) {
	if !s.live {
		if line := p.summary(); line != s.lastSeen {
			s.lastSeen = line
			s.say("%s", line)
		}
		return
	}
	s.clear()
	lines := p.lines()
	fmt.Fprint(s.out, strings.Join(lines, "\n")+"\n")
	s.drawn = len(lines)
}

// clear takes the picture off the screen.
func (s *screen) clear() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// A picture is how far the world is from what is declared.
type picture struct {
	want    int // pods that should be there
	updated int // of those there, how many are of the declared template
	ready   int
	away    bool // the control plane does not answer
	pods    []podLine
	sent    int
	failed  int
}

type podLine struct {
	name, state, greeting string
	ready                 bool
}

// distance counts what is still to be made true: pods missing, not ready or of an older template,
// and pods too many.
func (p picture) distance() int {
	d := max(0, p.want-p.updated) + max(0, p.want-p.ready)
	return d + max(0, len(p.pods)-p.want)
}

func (p picture) summary() string {
	if p.away {
		return "the control plane is away; the processes run on"
	}
	return fmt.Sprintf("declared %d · there %d · updated %d · ready %d · distance to setpoint %d",
		p.want, len(p.pods), p.updated, p.ready, p.distance())
}

func (p picture) lines() []string {
	lines := []string{"", "        " + p.summary()}
	for _, pod := range p.pods {
		mark := "\x1b[33m○\x1b[0m"
		if pod.ready {
			mark = "\x1b[32m●\x1b[0m"
		}
		lines = append(lines, fmt.Sprintf("        %s %-24s %-18s %s", mark, pod.name, pod.state, pod.greeting))
	}
	if p.sent > 0 {
		lines = append(lines, fmt.Sprintf("        requests to the service: %d, failed: %d", p.sent, p.failed))
	}
	return lines
}
