package operator_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bookv1 "github.com/setpoint-dev/setpoint/conformance/operator/api/v1"
)

func newBook(name string, guests ...string) *bookv1.Guestbook {
	return &bookv1.Guestbook{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       bookv1.GuestbookSpec{Guests: guests},
	}
}

func pagesOf(book string) func(Gomega) []string {
	return func(g Gomega) (guests []string) {
		var pages corev1.ConfigMapList
		g.Expect(cached.List(ctx, &pages, client.InNamespace("default"), client.MatchingFields{byOwner: book})).To(Succeed())
		for _, page := range pages.Items {
			guests = append(guests, page.Data["guest"])
		}
		return guests
	}
}

var _ = Describe("Guestbook controller", func() {
	It("keeps a page for each guest", func() {
		book := newBook("kept", "ann", "bob")
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		Expect(book.Spec.Limit).To(BeEquivalentTo(10), "the definition's default")
		Eventually(pagesOf("kept")).Should(ConsistOf("ann", "bob"))

		By("adding and removing guests")
		patch := client.MergeFrom(book.DeepCopyObject().(*bookv1.Guestbook))
		book.Spec.Guests = []string{"bob", "eve"}
		Expect(k8sClient.Patch(ctx, book, patch)).To(Succeed())
		Eventually(pagesOf("kept")).Should(ConsistOf("bob", "eve"))

		By("putting back what somebody deletes")
		Expect(k8sClient.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace("default"),
			client.MatchingFields{"metadata.name": "kept-eve"})).To(Succeed())
		Eventually(pagesOf("kept")).Should(ConsistOf("bob", "eve"))

		By("reporting what it has seen")
		Eventually(func(g Gomega) {
			g.Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(book), book)).To(Succeed())
			g.Expect(book.Status.ObservedGeneration).To(Equal(book.Generation))
			g.Expect(book.Status.Pages).To(BeEquivalentTo(2))
			g.Expect(meta.IsStatusConditionTrue(book.Status.Conditions, "Ready")).To(BeTrue())
		}).Should(Succeed())
	})

	It("says goodbye, and its pages are collected", func() {
		book := newBook("leaving", "ann")
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		Eventually(pagesOf("leaving")).Should(ConsistOf("ann"))
		Expect(k8sClient.Delete(ctx, book)).To(Succeed())
		Eventually(func() error {
			return k8sClient.Get(ctx, client.ObjectKeyFromObject(book), book)
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: "default", Name: "leaving-goodbye"}, &corev1.ConfigMap{})).To(Succeed())
		Eventually(func() error {
			return k8sClient.Get(ctx, client.ObjectKey{Namespace: "default", Name: "leaving-ann"}, &corev1.ConfigMap{})
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("works only while it leads", func() {
		var lease coordinationv1.Lease
		Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: "default", Name: "guestbook"}, &lease)).To(Succeed())
		Expect(*lease.Spec.HolderIdentity).NotTo(BeEmpty())
	})
})

var _ = Describe("The client", func() {
	It("is told what a definition forbids", func() {
		book := newBook("crowded", "a", "b", "c")
		book.Spec.Limit = 2
		err := k8sClient.Create(ctx, book)
		Expect(err).To(MatchError(apierrors.IsInvalid, "IsInvalid"))
		Expect(err).To(MatchError(ContainSubstring("there are more guests than the limit")))
	})

	It("meets a conflict when it is late", func() {
		book := newBook("late")
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		stale := book.DeepCopyObject().(*bookv1.Guestbook)
		stale.ResourceVersion = "1"
		stale.Spec.Limit = 3
		Expect(k8sClient.Update(ctx, stale)).To(MatchError(apierrors.IsConflict, "IsConflict"))
	})

	It("leaves status to the status subresource, and spec to the object", func() {
		book := &unstructured.Unstructured{}
		book.SetGroupVersionKind(bookv1.GroupVersion.WithKind("Guestbook"))
		book.SetNamespace("unwatched")
		book.SetName("split")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unwatched"}}
		Expect(k8sClient.Create(ctx, namespace)).To(Succeed())
		book.Object["spec"] = map[string]any{"limit": int64(4)}
		book.Object["status"] = map[string]any{"pages": int64(99)}
		Expect(k8sClient.Create(ctx, book, client.DryRunAll)).To(Succeed())
		Expect(book.Object).NotTo(HaveKey("status"))
	})

	It("applies, and is told of conflicts", func() {
		apply := func(owner, value string, opts ...client.ApplyOption) error {
			config := corev1ac.ConfigMap("applied", "default").WithData(map[string]string{"k": value})
			return k8sClient.Apply(ctx, config, append(opts, client.FieldOwner(owner))...)
		}
		Expect(apply("one", "1")).To(Succeed())
		Expect(apply("two", "2")).To(MatchError(apierrors.IsConflict, "IsConflict"))
		Expect(apply("two", "2", client.ForceOwnership)).To(Succeed())
		var got corev1.ConfigMap
		Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: "default", Name: "applied"}, &got)).To(Succeed())
		Expect(got.Data).To(HaveKeyWithValue("k", "2"))
	})

	It("lists in pages, by labels and by fields that a definition names", func() {
		for _, name := range []string{"p1", "p2", "p3"} {
			book := newBook(name)
			book.Labels, book.Spec.Limit = map[string]string{"paged": "yes"}, 7
			Expect(k8sClient.Create(ctx, book)).To(Succeed())
		}
		var names []string
		next := ""
		for {
			var page bookv1.GuestbookList
			Expect(k8sClient.List(ctx, &page, client.MatchingLabels{"paged": "yes"},
				client.MatchingFields{"spec.limit": "7"}, client.Limit(2), client.Continue(next))).To(Succeed())
			for _, book := range page.Items {
				names = append(names, book.Name)
			}
			if next = page.Continue; next == "" {
				break
			}
		}
		Expect(names).To(Equal([]string{"p1", "p2", "p3"}))
	})

	It("reads metadata alone", func() {
		partial := &metav1.PartialObjectMetadata{}
		partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		Expect(k8sClient.Get(ctx, client.ObjectKey{Name: "default"}, partial)).To(Succeed())
		Expect(partial.Labels).To(HaveKeyWithValue("kubernetes.io/metadata.name", "default"))
	})

	It("watches", func() {
		watching, err := client.NewWithWatch(existing, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		stream, err := watching.Watch(ctx, &corev1.SecretList{}, client.InNamespace("default"))
		Expect(err).NotTo(HaveOccurred())
		defer stream.Stop()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "watched"}}
		Expect(k8sClient.Create(ctx, secret)).To(Succeed())
		Eventually(stream.ResultChan()).Should(Receive(And(
			HaveField("Type", watch.Added), HaveField("Object.ObjectMeta.Name", "watched"))))
	})
})

var _ = Describe("The cache", func() {
	It("follows any kind that it is asked for, and forgets it again", func() {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cached"}}
		Expect(k8sClient.Create(ctx, secret)).To(Succeed())
		Eventually(func() error {
			return cached.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{})
		}).Should(Succeed())
		informer, err := mgr.GetCache().GetInformer(ctx, &corev1.Secret{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(informer.HasSynced, time.Minute).Should(BeTrue())
		Expect(mgr.GetCache().RemoveInformer(ctx, &corev1.Secret{})).To(Succeed())
		Eventually(informer.IsStopped).Should(BeTrue())
	})
})
