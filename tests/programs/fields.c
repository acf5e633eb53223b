/* The native method of Fields.java. */
#include <jni.h>

/* Keeps more on the stack than what it calls. */
static __attribute__((noinline)) jint read_field(JNIEnv *env, jobject object, jfieldID field)
{
	volatile jint pad[16];

	pad[0] = 1;
	return (*env)->GetIntField(env, object, field) + pad[0];
}

JNIEXPORT jint JNICALL Java_Fields_sum(JNIEnv *env, jobject object, jint reads)
{
	jfieldID field = (*env)->GetFieldID(env, (*env)->GetObjectClass(env, object), "field", "I");
	jint sum = 0;

	for (jint i = 0; i < reads; i++)
		sum += read_field(env, object, field);
	return sum;
}
