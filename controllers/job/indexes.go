package job

import (
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

func indexed(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.CompletionMode, "") == batchv1.IndexedCompletion
}

// indexOf is the index of a pod, or noIndex.
func indexOf(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return noIndex
	}
	return n
}

// span is a run of indexes, both ends included.
type span struct{ first, last int }

// spans is a set of indexes, as rising runs with gaps between them. As text it reads "0-2,5": it is how
// the status of a Job with a hundred thousand indexes stays small.
type spans []span

// indexesOf reads such a text; indexes that the Job no longer has, and what cannot be read, are left out.
func indexesOf(job *batchv1.Job, text string) (out spans) {
	most := int(ptr.Deref(job.Spec.Completions, 0))
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRun := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		if err != nil || first >= most {
			continue
		}
		last := first
		if isRun {
			if last, err = strconv.Atoi(high); err != nil || last < first {
				continue
			}
		}
		out = append(out, span{first, min(last, most-1)})
	}
	return out
}

func (s spans) String() string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(r.first))
		switch {
		case r.last == r.first+1:
			b.WriteString("," + strconv.Itoa(r.last))
		case r.last > r.first:
			b.WriteString("-" + strconv.Itoa(r.last))
		}
	}
	return b.String()
}

func (s spans) size() (n int) {
	for _, r := range s {
		n += r.last - r.first + 1
	}
	return n
}

// common is how many indexes two sets have in common.
func (s spans) common(with spans) (n int) {
	for _, a := range s {
		for _, b := range with {
			n += max(0, min(a.last, b.last)-max(a.first, b.first)+1)
		}
	}
	return n
}

// find returns the first run that does not end before an index, and whether the index is in it.
func (s spans) find(index int) (int, bool) {
	i, _ := slices.BinarySearchFunc(s, index, func(r span, n int) int { return r.last - n })
	return i, i < len(s) && s[i].first <= index
}

func (s spans) has(index int) bool {
	_, ok := s.find(index)
	return ok
}

// add puts in an index, and joins the runs that it closes the gap between.
func (s *spans) add(index int) {
	i, ok := s.find(index)
	if ok {
		return
	}
	out := slices.Insert(*s, i, span{index, index})
	if i+1 < len(out) && out[i+1].first <= index+1 {
		out[i].last = out[i+1].last
		out = slices.Delete(out, i+1, i+2)
	}
	if i > 0 && out[i-1].last >= index-1 {
		out[i-1].last = out[i].last
		out = slices.Delete(out, i, i+1)
	}
	*s = out
}

// newIndexes returns the indexes of the next pods: the lowest that are neither done nor under way, nor
// have failed for good. Those in last wait for their pauses; wait is how long the first does.
func (s snapshot) newIndexes(status *batchv1.JobStatus, n int, last map[int]*corev1.Pod) (out []int, wait time.Duration) {
	if !indexed(s.Job) {
		return slices.Repeat([]int{noIndex}, n), 0
	}
	taken := indexesOf(s.Job, status.CompletedIndexes)
	for _, r := range indexesOf(s.Job, ptr.Deref(status.FailedIndexes, "")) {
		for index := r.first; index <= r.last; index++ {
			taken.add(index)
		}
	}
	waits := ptr.Deref(s.Job.Spec.PodReplacementPolicy, "") == batchv1.Failed
	for _, pod := range s.Pods {
		if index := indexOf(pod); index >= 0 && (podfacts.Active(pod) || waits && podfacts.Terminating(pod)) {
			taken.add(index)
		}
	}
	for index := 0; index < int(ptr.Deref(s.Job.Spec.Completions, 0)) && len(out) < n; index++ {
		if i, ok := taken.find(index); ok {
			index = taken[i].last
			continue
		}
		if pod := last[index]; pod != nil {
			if pause := indexPause(s.Job, pod, s.Now); pause > 0 {
				wait = podfacts.Sooner(wait, pause)
				continue
			}
		}
		out = append(out, index)
	}
	return out, wait
}
